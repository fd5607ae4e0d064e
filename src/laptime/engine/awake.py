"""Weights that a comparison's step sees through: what begins at zero hides the backward pass of all that lies before.

A head that begins at zero (torchvision's ViT), a branch's last norm or scale (ConvNeXt's 1e-6), an adapter's second
matrix: no gradient, or hardly any, goes through them, so that in the first step a wrong one could not be told from a
right one. Before both sides' steps such weights get the size that other initializations give them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

# Layers' scales begin at 1e-6 (ConvNeXt) to 1e-4 (deep CaiT), biases aside at nothing between that and 1e-2.
_ASLEEP = 1e-4
# What CaiT's shallow nets begin their layers' scales with (Touvron et al. 2021, arXiv:2103.17239).
_SCALE = 0.1


def wake(model: nn.Module) -> None:
    """Gives trained weights that are all but zero a size, in place, alike for each net of the same names and shapes.

    Matrices and kernels are drawn as torch draws those of its own layers, evenly within 1 / sqrt(fan in); lines of
    numbers, which scale, become 0.1. Biases stay: gradients pass them by.
    """
    generator = torch.Generator().manual_seed(0)  # its own, since nets draw from the global one
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if _is_asleep(name, weight):
                weight.copy_(_awake(weight, generator))


def _is_asleep(name: str, weight: Tensor) -> bool:
    """Whether a parameter is trained, no bias, and all but zero."""
    if not weight.requires_grad or not weight.numel() or name.endswith("bias") or weight.layout != torch.strided:
        return False
    return float(weight.detach().abs().max()) <= _ASLEEP


def _awake(weight: Tensor, generator: torch.Generator) -> Tensor:
    if weight.numel() == max((1, *weight.shape)):  # a line of numbers, [C, 1, 1] say
        return torch.full(weight.shape, _SCALE)
    fan_in = weight.numel() // len(weight)
    return (2 * torch.rand(weight.shape, generator=generator) - 1) / math.sqrt(fan_in)
