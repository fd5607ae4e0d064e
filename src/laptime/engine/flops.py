"""Floating point operations of a training step, counted on shapes alone."""

from __future__ import annotations

import copy

import torch
from torch.utils.flop_counter import FlopCounterMode

from laptime.optimizations.base import Recipe
from laptime.workloads.base import Batch

_SAMPLES = 2


def flops_per_sample(recipe: Recipe) -> float:
    """Counts matrix products and convolutions of one forward and backward pass of the recipe's model.

    Runs on the meta device in a few milliseconds. torch's profiler leaves out the backward of convolutions; this
    does not.
    """
    model = copy.deepcopy(recipe.model).to("meta")
    images = torch.empty(_SAMPLES, 3, *recipe.image_size, device="meta")
    labels = torch.zeros(_SAMPLES, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        recipe.workload.forward(model, Batch(images, labels)).loss.backward()
    return float(counter.get_total_flops()) / _SAMPLES
