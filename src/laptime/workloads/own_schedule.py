"""A user's own schedule: a walk over some of its steps, and what does not go with it."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler

from laptime.data.lightning.module import LightningWorkload
from laptime.data.lightning.schedule import FollowedSchedule
from laptime.data.own.importing import told_with_line
from laptime.data.own.opened import OwnData
from laptime.own.user_code import place_in
from laptime.workloads.own import check_stepped, probe_optimizer, rates_of

_STEPS = 4
# A training of so many epochs has not let its rate fall to that share within half of the first.
_EPOCHS, _FALLEN = 10, 0.101
_MOST_STEPS = 2000


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


def falling(data: OwnData, model: nn.Module, rate: float, steps: int) -> str:
    """What to say of a schedule that counts in epochs, by its rates; empty where it does not, or fails here.

    A Trainer is told by a LightningModule what its schedules count in, and CyclicLR counts in steps wherever it stands.

    Args:
        data: the user's.
        model: the net.
        rate: the learning rate.
        steps: of an epoch.
    """
    schedule: Any = getattr(data.workload, "schedule", None)
    if schedule is None or isinstance(data.workload, LightningWorkload):
        return ""
    rates = list[float]()
    with suppress(Exception, SystemExit), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer takes no steps here
        optimizer = probe_optimizer(data.workload, model, rate)
        made = schedule(optimizer, steps, _EPOCHS)
        if isinstance(made, CyclicLR):
            return ""
        for _ in range(min(_MOST_STEPS, steps // 2)):
            rates.append(max(rates_of(optimizer)))
            made.step()
        rates.append(max(rates_of(optimizer)))
    top = 0.0
    for count, now in enumerate(rates):
        top = max(top, now)
        if now <= _FALLEN * top < top:  # a warm-up may begin at 0
            return (
                f"schedule() of {data.file.name}{place_in(data.file, (), (schedule,))} lets the learning rate fall "
                f"from {top:.3g} to {now:.3g} within {count} of the {steps} steps of an epoch: it is moved on after "
                "each step, so let it count in steps, each epoch being steps_per_epoch of them."
            )
    return ""


def _beside_the_rate(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """What a recorded step holds as numbers; momentum, which some schedules cycle, above all."""
    names = ("momentum", "betas", "weight_decay")
    return [tuple(group.get(name) for name in names) for group in optimizer.param_groups]
