"""Floating point operations of a training step, counted on shapes alone."""

from __future__ import annotations

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from laptime.optimizations.base import Recipe
from laptime.optimizations.samples import stand_in
from laptime.optimizations.shapes import SAMPLES, ShapesUnknownError, guarded, shadow_of


def flops_per_sample(recipe: Recipe) -> float | None:
    """Counts matrix products and convolutions of one forward and backward pass of the recipe's model.

    Runs on the meta device in a few milliseconds. torch's profiler leaves out the backward of convolutions; this
    does not. Where the size of the images grows over the epochs, it is their mean.

    Returns:
        None where the net can't be run on shapes alone.
    """
    sizes = recipe.epoch_sizes or (recipe.image_size,)
    try:
        model = shadow_of(recipe.model)
        counted = {size: _count(recipe, model, size) for size in set(sizes)}
    except ShapesUnknownError:
        return None
    return sum(counted[size] for size in sizes) / len(sizes)


def _count(recipe: Recipe, model: nn.Module, size: tuple[int, int]) -> float:
    batch = guarded(lambda: stand_in(recipe, SAMPLES, size=size))

    def forward_and_backward() -> None:
        recipe.workload.forward(model, batch).loss.backward()

    with FlopCounterMode(display=False) as counter:
        guarded(forward_and_backward)
    return float(counter.get_total_flops()) / len(batch)
