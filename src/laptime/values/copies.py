"""Copies of nets, of those too that hold what they have computed."""

from __future__ import annotations

import copy

from torch import Tensor, nn


def copy_of(model: nn.Module) -> nn.Module:
    """A copy of a net.

    What it holds of a graph comes as values, since torch copies none of that: a weight that torch.nn.utils.weight_norm
    or spectral_norm computes anew before each call, an activation of the last one, a buffer that a step has set.
    """
    parts = (value for part in model.modules() for value in (*vars(part).values(), *part.buffers(recurse=False)))
    held = (value for value in parts if isinstance(value, Tensor))
    return copy.deepcopy(model, {id(value): value.detach().clone() for value in held if not value.is_leaf})


def resize(buffer: Tensor, like: Tensor) -> None:
    """Gives a buffer another one's shape, in place; its values are not said.

    One that a net has set to what it computed, as the membrane of a spiking neuron, has a history, with which torch
    resizes nothing: it takes a copy's storage.
    """
    if buffer.requires_grad:
        buffer.data = like.detach().clone()
    else:
        buffer.resize_(like.shape)
