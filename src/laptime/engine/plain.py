"""Back to the plain architecture: weights and gradients in the baseline's layout.

What replaced a module keeps its parameters' names; only cropped kernels have another shape (`dead_taps.Crop`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from laptime.optimizations.dead_taps import crops


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict that the plain architecture loads: contiguous CPU tensors."""
    state = dict(model.state_dict())
    for name, (weight, crop) in crops(model).items():
        state[f"{name}.weight"] = crop.whole(weight)
    return {k: _written(v.detach().cpu()) for k, v in state.items()}


def _written(value: Tensor) -> Tensor:
    return (value.contiguous() if value.layout == torch.strided else value).clone()  # a sparse one has no format


def plain_gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients by the plain architecture's parameter names; zeros where there is none."""
    found = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in model.named_parameters()}
    for name, (_, crop) in crops(model).items():
        found[f"{name}.weight"] = crop.filled(found[f"{name}.weight"], 0.0)
    return found


def removed_parameters(model: nn.Module) -> int:
    """Parameters that the plain architecture has and this model does not."""
    return sum(crop.full.numel() - weight.numel() for weight, crop in crops(model).values())
