"""Copies of nets, of those too that hold what they have computed."""

from __future__ import annotations

import copy

from torch import Tensor, nn


def copy_of(model: nn.Module) -> nn.Module:
    """A copy of a net.

    What it holds of a graph comes as values, since torch copies none of that: a weight that torch.nn.utils.weight_norm
    or spectral_norm computes anew before each call, an activation of the last one.
    """
    held = (value for part in model.modules() for value in vars(part).values() if isinstance(value, Tensor))
    return copy.deepcopy(model, {id(value): value.detach().clone() for value in held if not value.is_leaf})
