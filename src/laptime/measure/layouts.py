"""What the convolutions of a net take in NCHW and in NHWC: each by itself, both ways in turn.

A trace does not tell: on a CPU oneDNN reorders inside of a convolution, and picks other kernels for the other format.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import nn

from laptime.optimizations.base import Recipe
from laptime.optimizations.products import layer_s
from laptime.optimizations.samples import stand_in
from laptime.optimizations.shapes import SAMPLES, ShapesUnknownError, input_shapes, runs_of
from laptime.optimizations.small_maps import ProductConv2d
from laptime.records import LayoutRecord
from laptime.values.trees import tensors

_FORMATS = (torch.contiguous_format, torch.channels_last)
_ROUNDS = 3
_BUDGET_S = 2.0


@dataclass(frozen=True)
class _Layer:
    """Convolutions that are alike.

    Attributes:
        shape: of the input [B, C, H, W], with the batch of this rank.
        calls: in a step.
        begins: whether the input is the batch, which needs no gradient.
    """

    conv: nn.Conv2d
    shape: tuple[int, ...]
    calls: int
    begins: bool

    @property
    def work(self) -> float:
        """Multiplications of all its calls, forward, as far as it takes to tell large from small."""
        height, width = (-(-size // step) for size, step in zip(self.shape[2:], self.conv.stride, strict=True))
        return float(self.calls * self.shape[0] * height * width * self.conv.weight.numel())


def measure_layouts(
    recipe: Recipe, local: int, clock: Callable[[], float] = perf_counter, budget_s: float = _BUDGET_S
) -> LayoutRecord | None:
    """Times forward and backward of a net's convolutions in both formats, in the run's precision.

    The largest go first, until the time is over; the times are brought up to all of them by their share of the work.

    Args:
        recipe: of the run; its net is not changed. Random numbers are left as they were.
        local: samples of this rank's batch.
        clock: seconds.
        budget_s: after which no further one is begun.

    Returns:
        None where the net is in NHWC already, is compiled, has no convolution, or can't be run on shapes.
    """
    if recipe.channels_last or recipe.compiled:
        return None
    try:
        layers = sorted(_layers(recipe, local), key=lambda layer: -layer.work)
    except ShapesUnknownError:
        return None
    begin, done, seconds = clock(), 0.0, [0.0, 0.0]
    with torch.random.fork_rng(devices=[recipe.device] if recipe.device.type == "cuda" else []):
        for layer in layers:
            if done and clock() - begin > budget_s:
                break
            for side, taken in enumerate(_both_ways(layer, recipe)):
                seconds[side] += taken * layer.calls
            done += layer.work
    if not done:
        return None
    share = done / sum(layer.work for layer in layers)
    nchw_ms, nhwc_ms = (1e3 * s / share for s in seconds)
    return LayoutRecord(nchw_ms=nchw_ms, nhwc_ms=nhwc_ms, share=share)


def _layers(recipe: Recipe, local: int) -> list[_Layer]:
    """The convolutions of one training step by what makes them alike; raises ShapesUnknownError."""
    images = stand_in(recipe, SAMPLES, size=recipe.sizes[-1]).content
    given = {tuple(t.shape) for t in tensors(images)}
    met = input_shapes(recipe.model, runs_of(recipe)[-1:], (nn.Conv2d,))
    alike: dict[object, _Layer] = {}
    for name, (trained, *_) in met.items():
        conv = recipe.model.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        if isinstance(conv, ProductConv2d):
            continue  # no kernel of a convolution's
        for shape in trained:
            if len(shape) != 4:
                continue  # one image without a batch
            # What a detector cuts out of images is a multiple of them, too.
            whole = (max(1, shape[0] * local // SAMPLES), *shape[1:])
            key = (whole, conv.weight.shape, conv.stride, conv.padding, conv.dilation, conv.groups, shape in given)
            calls = alike[key].calls if key in alike else 0
            alike[key] = _Layer(conv, whole, calls + 1, shape in given)
    return list(alike.values())


def _both_ways(layer: _Layer, recipe: Recipe) -> tuple[float, float]:
    """Seconds of forward and backward in NCHW and in NHWC, medians of rounds by turns after one that doesn't count."""
    sides = []
    for layout in _FORMATS:
        conv = copy.deepcopy(layer.conv).to(recipe.device).to(memory_format=layout)
        images = torch.randn(layer.shape, dtype=conv.weight.dtype, device=recipe.device).to(memory_format=layout)
        sides.append((conv, images if layer.begins else images.requires_grad_()))
    rounds = [[layer_s(conv, images, recipe) for conv, images in sides] for _ in range(_ROUNDS + 1)][1:]
    first, second = zip(*rounds, strict=True)
    return median(first), median(second)
