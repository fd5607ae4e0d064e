"""Back to the plain architecture: state dicts and gradients in the baseline's layout, whatever was replaced."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class PlainLayout(Protocol):
    """A module whose weight stands for another layout."""

    weight: nn.Parameter

    def plain_weight(self, weight: Tensor) -> Tensor:
        """The weight in the plain layout."""
        ...

    def plain_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient in the plain layout."""
        ...


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict that the plain architecture loads: contiguous CPU tensors."""
    state = dict(model.state_dict())
    for name, module in model.named_modules():
        if isinstance(module, PlainLayout):
            state[f"{name}.weight"] = module.plain_weight(state[f"{name}.weight"])
    return {k: v.detach().cpu().contiguous().clone() for k, v in state.items()}


def plain_gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients by the plain architecture's parameter names; zeros where there is none."""
    found = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in model.named_parameters()}
    for name, module in model.named_modules():
        if isinstance(module, PlainLayout):
            found[f"{name}.weight"] = module.plain_gradient(found[f"{name}.weight"])
    return found


def removed_parameters(model: nn.Module) -> int:
    """Parameters that the plain architecture has and this model does not."""
    return sum(
        module.plain_weight(module.weight).numel() - module.weight.numel()
        for module in model.modules()
        if isinstance(module, PlainLayout)
    )
