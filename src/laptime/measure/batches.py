"""What forward and backward of a training step take at the run's batch and at another one, by turns.

A larger batch gains what a step takes whatever its size: backward writes the gradient of each weight once, a kernel is
launched once. Passes in evaluation show too little of it, so it is training's own passes that are timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import torch

from laptime.catalogue import larger_batch
from laptime.measure.memory import free_bytes
from laptime.measure.passes import Passes, batch_of, put_back
from laptime.measure.rounds import worth_another
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.graph import GraphStep
from laptime.optimizations.passes import passes_of
from laptime.records import PassRecord

_ROUNDS = 3
# Passes at the run's batch and at the other one up to the end of the first round that counts.
_OWN, _OTHER = 4, 2
# Seconds at the run's batch, at the other, and at the run's again.
_Round = tuple[float, float, float]
# Of a trial that only shows by how much another moment differs.
_AGAIN_S = 1.0
# Of the free memory: on a CPU a process that takes too much is killed.
_ROOM = 0.5


@dataclass(frozen=True)
class Limits:
    """What may be taken.

    Attributes:
        step_ms: of a counted step, which is longer than a pass; None where not known.
        activations_mib: what a step at the run's batch takes beside what is held between steps; None where not known,
            and then no larger batch is tried.
        budget_s: after which no further round is begun.
    """

    step_ms: float | None
    activations_mib: float | None = None
    budget_s: float = 2.0


def measure_batches(
    parts: Parts,
    recipe: Recipe,
    epoch: int,
    limits: Limits,
    clock: Callable[[], float] = perf_counter,
    before: tuple[PassRecord, ...] = (),
) -> tuple[PassRecord, ...]:
    """Times forward and backward at the run's batch, and at the one that `large-batch` would bring.

    Where that takes too long or too much memory, at its largest power-of-two part that does not; where none does, at
    half of the run's batch. Samples are those of the training's loader, repeated as often as needed. Rounds that met a
    slow moment do not count where others did not. Buffers, gradients and random numbers are put back.

    Args:
        parts: of the run.
        recipe: what they were built from.
        epoch: whose first batch is taken.
        limits: of time and memory.
        clock: seconds.
        before: what was found at another moment: the same two sizes are timed once more, where a second holds them.

    Returns:
        By size; empty where the net is compiled (another shape would compile anew), the step is one graph (its passes
        are no part of it) or has several passes, ranks exchange gradients in a pass, steps are too
        long, a batch does not consist of samples, or none is larger.
    """
    if recipe.compiled or recipe.world.size > 1 or isinstance(parts.step, GraphStep) or passes_of(recipe) > 1:
        return ()
    largest = larger_batch(parts.device.type, recipe.batch_size, recipe.batch_size * len(parts.loader))
    too_long = limits.step_ms is None or 2e-3 * limits.step_ms > limits.budget_s
    too_long = too_long or _a_round_s(recipe.batch_size, before) > _AGAIN_S
    if too_long or largest <= recipe.batch_size:
        return ()
    given = batch_of(parts, epoch)
    if given is None:
        return ()
    if before:
        largest = next(p.batch_size for p in before if p.batch_size != len(given))
        limits = replace(limits, budget_s=_AGAIN_S)
    with put_back(parts):
        seconds = _by_turns(Passes(parts, given, clock), largest, limits)
    return tuple(PassRecord(batch_size=n, pass_ms=1e3 * median(s)) for n, s in sorted(seconds.items()))


def _a_round_s(size: int, before: tuple[PassRecord, ...]) -> float:
    """What another trial of the same sizes takes up to the end of its first round."""
    return 1e-3 * sum((_OWN if p.batch_size == size else _OTHER) * p.pass_ms for p in before)


def _by_turns(timed: Passes, largest: int, limits: Limits) -> dict[int, list[float]]:
    """Seconds of passes by size, after one of each that does not count; empty where no other size is in reach."""
    size, begin = len(timed.given), timed.clock()
    timed(size)
    in_time = (limits.budget_s / timed(size) - _OWN) / _OTHER
    other = other_size(size, largest, min(in_time, _in_memory(timed.parts.device, limits.activations_mib)))
    if other is None:
        return {}
    timed(other)
    rounds, kept = list[_Round](), list[_Round]()
    while not rounds or worth_another(len(kept), _ROUNDS, timed.clock() - begin, limits.budget_s):
        rounds.append((timed(size), timed(other), timed(size)))
        kept = [r for r in rounds if _usual(r, limits.step_ms)]
    kept = kept or rounds
    return {size: [s for own, _, again in kept for s in (own, again)], other: [s for _, s, _ in kept]}


def _usual(taken: _Round, step_ms: float | None) -> bool:
    """Whether the machine was as in the counted steps: forward and backward take no longer than a whole step there."""
    own, _, again = taken
    return step_ms is None or 1e3 * min(own, again) <= step_ms


def other_size(size: int, largest: int, most: float) -> int | None:
    """The size to try: a power-of-two part of the largest, else half of the batch; None where that is too much, too.

    Args:
        size: the run's batch.
        largest: the one that it may grow to.
        most: how many times the run's batch may be tried, in time and memory.
    """
    parts = [largest >> halvings for halvings in range(largest.bit_length())]
    return next((n for n in (*(p for p in parts if p > size), size // 2) if 1 < n <= most * size), None)


def _in_memory(device: torch.device, activations_mib: float | None) -> float:
    return _ROOM * free_bytes(device) / (activations_mib * 2**20) if activations_mib else 1.0
