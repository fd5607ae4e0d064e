"""What steps of a LightningModule find for their optimizer and its schedules: rates, to be told, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Groups = list[dict[str, Any]]


class Stepped(NamedTuple):
    """The optimizer that steps.

    Attributes:
        groups: gives its groups as they are now.
        size: how many there are.
        schedules: how many schedules its module has for it.
    """

    groups: Callable[[], Groups]
    size: int
    schedules: int


class Rates:
    """An optimizer, or a schedule of its, as a step may read it; copies, so that nothing that is written counts.

    Args:
        groups: the optimizer's, without their parameters.
    """

    def __init__(self, groups: Groups) -> None:
        self.param_groups = groups

    @property
    def optimizer(self) -> Rates:
        """Itself, as of Lightning's wrapper and of a schedule."""
        return self

    @property
    def scheduler(self) -> Rates:
        """Itself, as of what a Trainer keeps of a schedule."""
        return self

    def get_last_lr(self) -> list[Any]:
        """The rate of each group."""
        return [group["lr"] for group in self.param_groups]

    def __getattr__(self, name: str) -> Any:
        """Tells that a name is not there; raises AttributeError."""
        raise AttributeError(f"only Lightning's own Trainer has {name!r} of an optimizer or a schedule")


def rates_of(stepped: Stepped) -> tuple[Rates, list[Rates]]:
    """The optimizer and its schedules.

    What a compiler takes in, and a recorded step, are told nan: a compiler would begin anew with each rate, and a
    tensor on a GPU can't be read while it records.
    """
    if torch.compiler.is_compiling():
        told = Rates([{"lr": math.nan} for _ in range(stepped.size)])
    else:
        own = ({n: v for n, v in group.items() if n != "params"} for group in stepped.groups())
        told = Rates([{n: math.nan if isinstance(v, Tensor) else v for n, v in group.items()} for group in own])
    return told, [told] * stepped.schedules


def optimizers(module: Any, use_pl_optimizer: bool = True) -> Any:
    """In the place of a module's own method: its one optimizer."""
    return rates_of(module.trainer.stepped)[0]


def lr_schedulers(module: Any) -> Any:
    """In the place of a module's own method: one schedule or a list, None without any."""
    found = rates_of(module.trainer.stepped)[1]
    return found if found[1:] else next(iter(found), None)
