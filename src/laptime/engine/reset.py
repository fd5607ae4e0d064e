"""State before and after warm-up: the counted run starts from the initial weights, in the same tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from laptime.optimizations.base import Parts, Recipe


def snapshot(p: Parts) -> dict[str, Tensor]:
    """Copies parameters and buffers."""
    return {name: value.detach().clone() for name, value in tensors(p).items()}


def reset(p: Parts, recipe: Recipe, saved: dict[str, Tensor]) -> None:
    """Puts weights, BatchNorm statistics, optimizer, loss scale, schedule and random state back to the start.

    In place, since captured graphs and views hold the tensors. Zeroed moments equal fresh ones for Adam and SGD.
    """
    with torch.no_grad():
        for name, value in tensors(p).items():
            value.copy_(saved[name])
        if p.average is not None:
            p.average.restart(p.model)
        for state in p.optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
    _reset_rates(p.optimizer, recipe.learning_rate)
    if p.scaler.is_enabled():
        p.scaler.load_state_dict(GradScaler(p.device.type).state_dict())  # fills its tensors, replaces none
    p.schedule = recipe.make_schedule(p.optimizer, recipe.epochs * len(p.loader))
    torch.manual_seed(recipe.seed)


def _reset_rates(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        group.pop("initial_lr", None)


def tensors(p: Parts) -> dict[str, Tensor]:
    """Parameters and buffers of a run's model, by name."""
    return dict(p.model.named_parameters()) | dict(p.model.named_buffers())
