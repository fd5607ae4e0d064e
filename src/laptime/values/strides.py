"""Where in memory the values of weights lie."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer


def out_of_order(made: Optimizer) -> str:
    """Which weight fused kernels would update at other places than its own; empty without any.

    On a CPU they walk weights, gradients and moments by address, one beside the other, whatever their strides, and say
    nothing (torch 2.15); on a GPU they refuse.
    """
    weights = (p for group in made.param_groups for p in group["params"])
    for p in (p for p in weights if p.layout == torch.strided):
        others = [t for t in (p.grad, *made.state.get(p, {}).values()) if isinstance(t, Tensor) and t.shape == p.shape]
        if not _dense(p):
            told = f"lies within a larger tensor (strides {p.stride()}): make it .contiguous() where it is made"
        elif any(t.layout == torch.strided and _order(t) != _order(p) for t in others):
            told = f"lies in another order of memory (strides {p.stride()}) than its gradient or its moments"
        else:
            continue
        return f"fused kernels go through weights by address, and one of shape {tuple(p.shape)} {told}"
    return ""


def _dense(tensor: Tensor) -> bool:
    """Whether its values fill their memory without a gap, in whatever order."""
    beside = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != beside:
            return False
        beside *= size
    return True


def _order(tensor: Tensor) -> tuple[int, ...]:
    """The strides that tell where values lie."""
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
