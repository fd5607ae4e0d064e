"""Momenta of an optimizer's weights, where not all of them begin in the same step."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer


def begun_late(optimizer: Optimizer) -> Optimizer:
    """The optimizer; SGD's weights may get their first gradient later than others (experts, blocks that are left out).

    torch's fused kernel takes momenta of all weights or of none.
    """
    if isinstance(optimizer, torch.optim.SGD):
        optimizer.register_step_pre_hook(_begin)
    return optimizer


def _begin(optimizer: Optimizer, *_: Any) -> None:
    """Begins with momenta of zeros, of which a first gradient that is not dampened makes what it makes of none."""
    if len(optimizer.state) == sum(len(group["params"]) for group in optimizer.param_groups):
        return
    for group in optimizer.param_groups:
        stepped = [p for p in group["params"] if p.grad is not None] if group["momentum"] else []
        late = [p for p in stepped if optimizer.state.get(p, {}).get("momentum_buffer") is None]
        if len(late) < len(stepped) and not group["dampening"]:
            optimizer.state.update({p: {"momentum_buffer": torch.zeros_like(p)} for p in late})
