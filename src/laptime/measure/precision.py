"""What forward and backward of a training step take as they are, and in bf16, on the run's own net and batch.

A training stays in one format, so blocks of passes take turns and the first pass of each does not count: pass by pass,
each format would meet memory and caches as the other left them, which hid half of what bf16 gains (docs/log.md).

A probe times steps that other optimizations have shaped: of a plain net at a small batch, whose casts and small kernels
weigh more, its ratio promised two to three times what bf16 brought (docs/log.md, 2026-11-25).
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from laptime.devices import emulates_bf16
from laptime.engine.setup import samples_at_once
from laptime.measure.batches import Limits
from laptime.measure.passes import Passes, batch_of, put_back
from laptime.measure.rounds import worth_another
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.graph import GraphStep
from laptime.optimizations.precision import under_autocast
from laptime.records import PrecisionRecord

_ROUNDS = 4
_LEAST_ROUNDS = 2
_BLOCK = 4
# Ampere, the first generation with units for bf16.
_HAS_BF16 = 8


def measure_bf16(
    parts: Parts, recipe: Recipe, epoch: int, limits: Limits, clock: Callable[[], float] = perf_counter
) -> PrecisionRecord | None:
    """Times forward and backward in fp32 and under bf16 autocast; medians over blocks by turns.

    Buffers, gradients and random numbers are put back.

    Args:
        parts: of the run.
        recipe: what they were built from.
        epoch: whose first batch is taken.
        limits: of time; two blocks of each are done whatever they take, so steps must be short enough for those.
        clock: seconds.

    Returns:
        None where the run is not in fp32, the device has no instructions for bf16, the net is compiled (another format
        would compile anew), the step is one graph, ranks exchange gradients in a pass, steps are too long, or a batch
        does not consist of samples.
    """
    fixed = recipe.compiled or recipe.world.size > 1 or isinstance(parts.step, GraphStep)
    if fixed or recipe.precision != "fp32" or not _has_bf16(parts.device):
        return None
    if limits.step_ms is None or 2e-3 * _LEAST_ROUNDS * _BLOCK * limits.step_ms > limits.budget_s:
        return None
    given = batch_of(parts, epoch)
    if given is None:
        return None
    size = min(len(given), samples_at_once(recipe))
    shorter = under_autocast(parts.forward, parts.device.type, "bf16")
    own_s, bf16_s = list[float](), list[float]()
    with put_back(parts):
        timed, begin, done = Passes(parts, given, clock), clock(), 0
        while done < _LEAST_ROUNDS or worth_another(done, _ROUNDS, clock() - begin, limits.budget_s):
            done += 1
            own_s += [timed(size) for _ in range(_BLOCK)][1:]
            bf16_s += [timed(size, shorter) for _ in range(_BLOCK)][1:]
    step_ms = 1e3 * len(given) / size
    return PrecisionRecord(own_ms=step_ms * median(own_s), bf16_ms=step_ms * median(bf16_s))


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= _HAS_BF16
    return not emulates_bf16()
