"""A user's own schedule: a walk over some of its steps, and what does not go with it."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from laptime.data.lightning.schedule import FollowedSchedule
from laptime.data.own.importing import told_with_line
from laptime.data.own.opened import OwnData
from laptime.own.user_code import place_in
from laptime.workloads.own import check_stepped, probe_optimizer

_STEPS = 4


def walked(data: OwnData, model: nn.Module, rate: float, steps: int) -> dict[str, str]:
    """What goes with no schedule of the user's own over some steps, which is walked for a few; nothing without one."""
    schedule: Any = getattr(data.workload, "schedule", None)
    if schedule is None:
        return {}
    optimizer = probe_optimizer(data.workload, model, rate)
    fixed, maker = _beside_the_rate(optimizer), getattr(data.workload, "configuring", schedule)  # of a LightningModule
    with told_with_line(f"{maker.__name__}()", data.file, maker):
        made: Any = schedule(optimizer, steps, 1)
        check_stepped(made, "schedule", f"{data.file.name}{place_in(data.file, (), (schedule,))}")
        for _ in range(min(_STEPS, max(1, steps - 1))):
            optimizer.step()
            made.step()
        if isinstance(made, FollowedSchedule):
            made.end_epoch()
    refused = dict.fromkeys(("onecycle", "linear-decay"), "its own schedule settles the learning rate")
    known = isinstance(made, LRScheduler) or (isinstance(made, FollowedSchedule) and not made.cycles)
    if not known or _beside_the_rate(optimizer) != fixed:
        refused["graph"] = "its schedule changes more than the learning rate, or in ways of its own"
    return refused


def _beside_the_rate(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """What a recorded step holds as numbers; momentum, which some schedules cycle, above all."""
    names = ("momentum", "betas", "weight_decay")
    return [tuple(group.get(name) for name in names) for group in optimizer.param_groups]
