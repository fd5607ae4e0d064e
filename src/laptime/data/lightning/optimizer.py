"""The optimizer of a LightningModule, as it was before a schedule touched it, and others like it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from laptime.data.lightning.refused import STEPS, line_of, methods_of, overridden, reached
from laptime.data.lightning.schedule import apart
from laptime.errors import UsageError, shorten
from laptime.own.user_code import parameters_of

# What torch's schedules write into the groups.
_WRITTEN = ("initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum")


def optimizer_of(module: Any) -> tuple[Optimizer, list[dict[str, Any]]]:
    """What configure_optimizers() gives: one optimizer at the rates before its schedules, and these, see `apart`.

    Raises:
        UsageError: there is none, there are several, or a schedule moves on at other times than Lightning has.
    """
    function = overridden(module, "configure_optimizers")
    if function is None:
        raise UsageError(
            f"{type(module).__name__} has no configure_optimizers(): return one optimizer from it, the one that a "
            "LightningCLI is given too."
        )
    given, schedules = apart(module.configure_optimizers())
    if not isinstance(given, Optimizer):
        many = f"{len(given)} optimizers" if isinstance(given, tuple | list) else f"a {type(given).__name__}"
        raise UsageError(
            f"configure_optimizers() ({line_of(function)}) gives {many}: laptime steps one, so give one of torch.optim."
        )
    for schedule in schedules:
        _refuse_other_times(schedule, line_of(function))
    if schedules:  # else the rate is the user's own, beside what a checkpoint's schedule has left in the groups
        _undo_schedule(given)
    _refuse_what_is_not_made_again(given, module, line_of(function))
    _refuse_read(module, [given, *(schedule["scheduler"] for schedule in schedules)], line_of(function))
    return given, schedules


def forgotten(own: object, made: object) -> list[str]:
    """Plain attributes of an optimizer that another one, made like it, has with other values: no group holds them."""
    there = vars(made)
    plain = {n: v for n, v in vars(own).items() if isinstance(v, int | float | str | tuple) and n in there}
    return [name for name, value in plain.items() if there[name] != value]


def has_step_hooks(own: Optimizer) -> bool:
    """Whether functions of the user's run before or behind each step, which an optimizer made anew lacks."""
    return any(getattr(own, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post"))


def _refuse_what_is_not_made_again(own: Optimizer, module: Any, line: str) -> None:
    """Raises UsageError where an optimizer of the same class and groups fails or is another one.

    Each run makes its own: one that wraps another optimizer (Lookahead, SAM) does not take parameters, and what a class
    keeps beside its groups would come back with its default.
    """
    kind, plain = type(own).__name__, list(module.parameters())
    foreign = len({id(p) for group in own.param_groups for p in group["params"]} - {id(p) for p in plain})
    if foreign:
        raise UsageError(
            f"configure_optimizers() ({line}) gives an optimizer of tensors ({foreign}) that are no parameters of "
            "the module: make them parameters (nn.Parameter), or parts of a net that the module holds."
        )
    remedy = "give one of torch.optim, or one whose class takes parameters and groups and keeps its options in these"
    told = f"configure_optimizers() ({line}) gives {kind}, and each run makes its own from the parameters"
    if has_step_hooks(own):  # a step that is replaced tells nothing, since schedules replace it
        raise UsageError(f"{told}, without the hooks of its steps: do their work in training_step().")
    try:
        lost = forgotten(own, made_like(own, plain, plain, own.param_groups[0]["lr"]))
    except Exception as error:  # whatever the user's class raises
        said = shorten(f"{type(error).__name__}: {' '.join(str(error).split())}", 160)
        raise UsageError(f"{told}, which fails ({said}): {remedy}.") from error
    if lost:
        raise UsageError(f"{told}, which then has another {' and another '.join(lost)}: {remedy}.")


def _refuse_read(module: Any, made: Sequence[Any], line: str) -> None:
    """Raises UsageError where steps read an optimizer or a schedule of the module's own, which takes no steps."""
    read = reached([method for _, method in methods_of(module)], STEPS)
    for name, value in vars(module).items():
        held = value if isinstance(value, list | tuple) else [value]
        if name in read and any(one is other for one in held for other in made):
            raise UsageError(
                f"steps of {type(module).__name__} read self.{name}, which configure_optimizers() ({line}) gives, but "
                "each run makes its own and leaves that as it is: leave the line out where it only logs, else count by "
                "self.global_step or self.current_epoch."
            )


def rated(own: Optimizer, rate: float | Tensor) -> list[dict[str, Any]]:
    """The options of an optimizer's groups at another rate, to which theirs keep their ratios."""
    first = own.param_groups[0]["lr"]
    options = [{k: v for k, v in group.items() if k != "params"} for group in own.param_groups]
    return [{**o, "lr": rate if len(options) == 1 else rate * (o["lr"] / first)} for o in options]


def again(own: Optimizer, groups: list[dict[str, Any]]) -> Optimizer:
    """Another optimizer of the same kind, with the same options for all groups."""
    kind = type(own)
    named = parameters_of(kind)
    known = {k: v for k, v in own.defaults.items() if k in named}
    return kind(groups, **known)


def made_like(own: Optimizer, plain: Sequence[Tensor], given: Sequence[Tensor], rate: float | Tensor) -> Optimizer:
    """An optimizer of the parameters that are given, in groups as those of the plain net are, place by place.

    It begins with the moments that the user's code has loaded, out of a checkpoint say.
    """
    place = {id(parameter): number for number, parameter in enumerate(plain)}
    pairs = zip(own.param_groups, rated(own, rate), strict=True)
    made = again(own, [{**o, "params": [given[place[id(p)]] for p in group["params"]]} for group, o in pairs])
    if state := loaded(own):
        made.load_state_dict({**made.state_dict(), "state": state})
    return made


def loaded(own: Optimizer) -> dict[Any, Any]:
    """A copy of an optimizer's state by places in its groups; empty where its class itself begins with that."""
    if not own.state:
        return {}
    state, fresh = (made.state_dict()["state"] for made in (own, again(own, [{**g} for g in own.param_groups])))
    return {} if alike(state, fresh) else copy.deepcopy(state)


def alike(one: Any, other: Any) -> bool:
    """Whether two states hold the same keys and values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return type(one) is type(other) and not isinstance(one, Tensor) and bool(one == other)


def _refuse_other_times(schedule: dict[str, Any], line: str) -> None:
    """Raises UsageError for an interval or a frequency that Lightning has not, or what is no schedule at all."""
    kind = type(schedule["scheduler"]).__name__
    told, interval = f"configure_optimizers() ({line}) gives {kind}", schedule.get("interval", "epoch")
    every = schedule.get("frequency", 1)
    if not callable(getattr(schedule["scheduler"], "step", None)):
        raise UsageError(f"{told} as a schedule, which has no step(): give one of torch.optim.lr_scheduler.")
    if interval not in ("step", "epoch"):
        raise UsageError(f"{told} with interval {shorten(repr(interval))}: give 'step' or 'epoch'.")
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise UsageError(f"{told} with frequency {shorten(repr(every))}: give a whole number, at least 1.")


def _undo_schedule(optimizer: Optimizer) -> None:
    """Gives groups the rates that a schedule begins from, which has set its own for the first step when it was made.

    OneCycleLR says its peak in the place of the optimizer's rate, and cycles the momentum too, as CyclicLR does: that
    of the optimizer's defaults comes back.
    """
    for group in optimizer.param_groups:
        group["lr"] = group.get("max_lr", group.get("initial_lr", group["lr"]))
        if "max_momentum" in group and "betas" in group:
            group["betas"] = (optimizer.defaults["betas"][0], *group["betas"][1:])
        elif "max_momentum" in group:
            group["momentum"] = optimizer.defaults["momentum"]
        for name in _WRITTEN:
            group.pop(name, None)
