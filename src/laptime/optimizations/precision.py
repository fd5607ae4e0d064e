"""Stage precision: the number format of convolutions and matrix products."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from laptime.optimizations.base import Forward, Options, Recipe
from laptime.workloads.base import Batch, Output


def bf16(recipe: Recipe, options: Options) -> Recipe:
    """Runs the forward pass under bfloat16 autocast; weights, gradients and optimizer state stay fp32."""
    return replace(recipe, forward=_autocast(recipe.forward, recipe.device.type), precision="bf16")


def _autocast(forward: Forward, device: str) -> Forward:
    def under_autocast(model: nn.Module, batch: Batch) -> Output:
        with torch.autocast(device, torch.bfloat16):
            return forward(model, batch)

    return under_autocast
