"""A user's own schedule: a walk over some of its steps, and what does not go with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, ExponentialLR, LRScheduler, MultiStepLR, StepLR

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
# Epochs of fewer steps may be over before a schedule that counts them has done with these many: no other may have.
_FEWEST_STEPS = 4
# Sizes of a StepLR up to a hundred are those of recipes in epochs; in steps none brings a training that is half done
# to a thousandth by three of them.
_MOST_DROPS, _SPENT = 300, 0.00101
_FIXED = (StepLR, MultiStepLR, ExponentialLR)
# Milestones in steps bring none to a hundredth within two epochs; in epochs there are two of them in many recipes.
_DROPPED_TWICE = 0.0101


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
    fallen = next(filter(None, (_fallen(*judged) for judged in _judged(data, model, rate, steps))), None)
    if fallen is None:
        return ""
    count, top, now = fallen
    within = f"{count} of the {steps} steps of an epoch" if count <= steps else f"{count} steps ({steps} are an epoch)"
    return (
        f"schedule() of {data.file.name}{place_in(data.file, (), (schedule,))} lets the learning rate fall "
        f"from {top:.3g} to {now:.3g} within {within}: it is moved on after each step, so let it count in steps, "
        "each epoch being steps_per_epoch of them."
    )


def _judged(data: OwnData, model: nn.Module, rate: float, steps: int) -> Iterator[tuple[list[float], float]]:
    """The rates of so many steps that no schedule which counts in steps lets fall to a share of its highest."""
    made, rates = _walk(data, model, rate, (steps, _EPOCHS))
    if isinstance(made, CyclicLR):
        return
    yield rates[: steps // 2 + 1], _FALLEN
    _, longer = _walk(data, model, rate, (3 * steps, _EPOCHS))
    _, more = _walk(data, model, rate, (steps, 2 * _EPOCHS))
    few = _EPOCHS + 1
    if steps >= _FEWEST_STEPS and rates[:few] == longer[:few] and rates[:few] != more[:few]:
        yield rates[:few], _FALLEN  # it goes by epochs, and not by their steps
    many = min(_MOST_DROPS, steps * _EPOCHS // 2) + 1
    if isinstance(made, _FIXED) and rates[:many] == longer[:many]:
        yield rates[:many], _SPENT
    early = 2 * steps + 1
    if isinstance(made, MultiStepLR) and steps >= _FEWEST_STEPS and rates[:early] == longer[:early]:
        yield rates[:early], _DROPPED_TWICE


def _walk(data: OwnData, model: nn.Module, rate: float, asked: tuple[int, int]) -> tuple[object, list[float]]:
    """The user's schedule for steps and epochs, and its highest rate at the start and after each of many steps.

    It ends early where it fails.
    """
    schedule: Any = data.workload.schedule  # type: ignore[attr-defined]
    made, rates = None, list[float]()
    with suppress(Exception, SystemExit), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer takes no steps here
        optimizer = probe_optimizer(data.workload, model, rate)
        made = schedule(optimizer, *asked)
        for _ in range(max(_MOST_DROPS, min(_MOST_STEPS, asked[0] // 2))):
            rates.append(max(rates_of(optimizer)))
            made.step()
        rates.append(max(rates_of(optimizer)))
    return made, rates


def _fallen(rates: list[float], share: float) -> tuple[int, float, float] | None:
    """After how many steps the rate is at a share of its highest, with both; None where it does not fall so far."""
    top = 0.0
    for count, now in enumerate(rates):
        top = max(top, now)
        if now <= share * top < top:  # a warm-up may begin at 0
            return count, top, now
    return None


def _beside_the_rate(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """What a recorded step holds as numbers; momentum, which some schedules cycle, above all."""
    names = ("momentum", "betas", "weight_decay")
    return [tuple(group.get(name) for name in names) for group in optimizer.param_groups]
