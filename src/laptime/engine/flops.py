"""Floating point operations of a training step, counted on shapes alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, flop_registry

from laptime.optimizations.base import Recipe
from laptime.optimizations.samples import stand_in
from laptime.optimizations.shapes import SAMPLES, ShapesUnknownError, guarded, shadow_of


def convolution_backward(grad_out: Any, x: Any, weight: Any, *more: Any, **_: Any) -> int:
    """Operations of a convolution's backward: for each of input and kernel that wants a gradient those of the forward.

    torch's own formula counts the kernel's gradient of a convolution of g groups g times, so of EfficientNet-B5's step
    13 times too much. Takes tensors or their shapes, in the order of `aten::convolution_backward`.
    """
    transposed, wanted = more[4], more[7]
    read, kernel, made = (list(getattr(given, "shape", given)) for given in (x, weight, grad_out))
    return conv_flop_count(read, kernel, made, transposed) * sum(map(bool, wanted[:2]))


_OWN: dict[Any, Callable[..., int]] = {torch.ops.aten.convolution_backward: convolution_backward}


def formula_of(operation: Any) -> Callable[..., int] | None:
    """What counts the floating point operations of one of torch's, from its arguments and `out_val`."""
    return _OWN.get(operation) or flop_registry.get(operation)


def flops_per_sample(recipe: Recipe) -> float | None:
    """Counts matrix products and convolutions of one forward and backward pass of the recipe's model.

    Runs on the meta device in a few milliseconds. torch's profiler leaves out the backward of convolutions; this
    does not. Where the size of the images grows over the epochs, or a part of a batch trains, it is the epochs' mean.

    Returns:
        None where the net can't be run on shapes alone.
    """
    kinds = [recipe.kind(epoch) for epoch in range(recipe.epochs)]
    try:
        model = shadow_of(recipe.model)
        counted = {size: _count(recipe, model, size) for size, _ in set(kinds)}
    except ShapesUnknownError:
        return None
    return sum(_done(recipe, *counted[size], share) for size, share in kinds) / len(kinds)


def _done(recipe: Recipe, forward: float, step: float, share: float) -> float:
    """Operations by sample of a batch, of which a share trains after a forward pass of all of it."""
    if recipe.selection is None or share == 1:
        return step
    whole = 1 / recipe.selection.every if recipe.selection.every else 0.0
    return whole * step + (1 - whole) * (forward + share * step)


def _count(recipe: Recipe, model: nn.Module, size: tuple[int, int]) -> tuple[float, float]:
    """Operations by sample of a forward pass, and of one with its backward."""
    batch = guarded(lambda: stand_in(recipe, SAMPLES, size=size))
    with FlopCounterMode(display=False, custom_mapping=_OWN) as counter:
        loss = guarded(lambda: recipe.workload.forward(model, batch).loss)
        forward = counter.get_total_flops()
        guarded(loss.backward)
    return forward / len(batch), counter.get_total_flops() / len(batch)
