"""Stage layout: the memory format of weights and images, and what would break it on the way back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from laptime.optimizations.base import Options, Recipe
from laptime.values.copies import copy_of


def channels_last(recipe: Recipe, options: Options) -> Recipe:
    """Puts weights and images into NHWC memory format; oneDNN and cuDNN then need no reorders between layers."""
    model = copy_of(recipe.model).to(memory_format=torch.channels_last)
    spread_means(model)
    return replace(recipe, model=model, channels_last=True)


class SpreadMean(torch.autograd.Function):
    """The mean over each map, whose gradient is one value a map that is spread by strides.

    torch writes that gradient out as a map, in NCHW whatever the format of the map was; adding it to what comes back on
    another way (as within squeeze and excitation) then takes ten times as long as of two maps in one format.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(maps: Tensor) -> Tensor:
        """[..., H, W] to [..., 1, 1]."""
        return maps.mean((-2, -1), keepdim=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keeps the size of the maps."""
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """[..., 1, 1] to [..., H, W]."""
        value: Tensor = gradients[0] / (ctx.shape[-2] * ctx.shape[-1])
        return value.expand(ctx.shape)


class SpreadMeanPool2d(nn.AdaptiveAvgPool2d):
    """Global average pooling by `SpreadMean`."""

    def forward(self, maps: Tensor) -> Tensor:
        """[..., H, W] to [..., 1, 1]."""
        found: Tensor = SpreadMean.apply(maps)
        return found


def spread_means(model: nn.Module) -> None:
    """Turns torch's global average pools into `SpreadMeanPool2d`, with whatever hooks they have."""
    for module in model.modules():
        if type(module) is nn.AdaptiveAvgPool2d and module.output_size in (1, (1, 1)):
            module.__class__ = SpreadMeanPool2d
