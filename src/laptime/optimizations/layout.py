"""Stage layout: the memory format of weights and images."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from laptime.optimizations.base import Options, Recipe


def channels_last(recipe: Recipe, options: Options) -> Recipe:
    """Puts weights and images into NHWC memory format; oneDNN and cuDNN then need no reorders between layers."""
    model = copy.deepcopy(recipe.model).to(memory_format=torch.channels_last)
    return replace(recipe, model=model, channels_last=True)
