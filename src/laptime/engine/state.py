"""All that a run's next step depends on: taken out for a checkpoint, and put back in place."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from laptime.engine.reset import copy_known, tensors
from laptime.optimizations.base import Parts
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.tallies import put_values, values_of

State = dict[str, Any]


def state_of(p: Parts) -> State:
    """Weights, optimizer, schedule, loss scale, average, random states and what code of the user's own counts: the
    run's own tensors, not copies.

    The order of the samples, what augmentations throw and what items draw in loader workers follow from seed and epoch,
    so no loader has a state. Of several ranks the first one's random states are kept: what the others draw follows from
    seed and epoch, too.
    """
    average = p.average
    on_gpu = p.device.type == "cuda"
    return {
        "model": {name: value.detach() for name, value in tensors(p).items()},
        "optimizer": p.optimizer.state_dict(),
        "schedule": p.schedule.state_dict() if hasattr(p.schedule, "state_dict") else {},
        "scaler": p.scaler.state_dict(),
        "numbers": [_moved(owner, begun) for owner, begun, _ in p.numbers],
        "average": None if average is None else {"steps": average.steps, "tensors": list(_averaged(p))},
        "random": {
            **drawn(),
            "cuda": torch.cuda.get_rng_state(p.device) if on_gpu else None,  # waits for the device
        },
    }


def put_back(p: Parts, state: State, done: int) -> None:
    """Puts a state into a run that was built alike and reset, in place, since captured graphs and views hold the
    tensors.

    Args:
        p: the run.
        state: see `state_of`.
        done: steps that lie behind it, for a schedule of the user's own that has no state to load.
    """
    if not hasattr(p.schedule, "load_state_dict"):
        for _ in range(done):
            p.schedule.step()
    with torch.no_grad():
        copy_known(tensors(p), state["model"])
        if p.average is not None:
            p.average.steps = int(state["average"]["steps"])
            for own, found in zip(_averaged(p), state["average"]["tensors"], strict=True):
                own.copy_(found)
        _put_back_optimizer(p.optimizer, state["optimizer"])
    if hasattr(p.schedule, "load_state_dict"):
        p.schedule.load_state_dict(state["schedule"])
    if p.scaler.is_enabled():
        p.scaler.load_state_dict(state["scaler"])  # fills its tensors, replaces none
    _put_back_moved(p, state.get("numbers", ()))  # of a version that kept none there are none: they begin anew
    put_back_drawn(state["random"])
    if p.device.type == "cuda":
        torch.cuda.set_rng_state(state["random"]["cuda"], p.device)


def _moved(owner: Any, begun: dict[str, Any]) -> dict[str, Any]:
    """An object's plain values that are others than in the beginning, of the types that a checkpoint is read back with.

    A text that has not moved, a path say, may be another one in the process that goes on.
    """
    found = values_of(owner)
    moved = {name: value for name, value in found.items() if name not in begun or begun[name] is not value}
    return {n: _written(v) for n, v in moved.items() if not (isinstance(v, tuple) and v == begun.get(n))}


def _put_back_moved(p: Parts, saved: Sequence[dict[str, Any]]) -> None:
    for (owner, begun, _), found in zip(p.numbers, saved, strict=False):
        put_values(owner, {name: _of_kind(value, begun.get(name)) for name, value in found.items()})


def _written(value: Any) -> Any:
    """None of numpy's types and of the user's own: an enum's member by its name."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "values": value.tolist()}
    if isinstance(value, list | deque | set):
        return list(map(_written, value))
    if isinstance(value, tuple):
        return tuple(map(_written, value))
    return value.item() if hasattr(value, "item") else value


def _of_kind(value: Any, like: Any) -> Any:
    """A value of a checkpoint as one of the kind that stands there in the beginning."""
    if isinstance(like, Enum):
        return type(like)[value]
    if isinstance(like, np.generic):
        return type(like)(value)
    if isinstance(value, dict):
        return np.array(value["values"], value["dtype"])
    if isinstance(like, deque | set):
        return deque(value, like.maxlen) if isinstance(like, deque) else set(value)
    if isinstance(like, tuple) and isinstance(value, tuple) and len(like) == len(value):
        parts = [_of_kind(*pair) for pair in zip(value, like, strict=True)]
        return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
    return value


def _averaged(p: Parts) -> tuple[Tensor, ...]:
    assert p.average is not None
    return (*p.average.model.parameters(), *p.average.model.buffers())


def _put_back_optimizer(optimizer: Optimizer, saved: State) -> None:
    """Moments, learning rates, and what else stands in the groups, since a schedule may cycle momentum, too."""
    rates = [group["lr"] for group in optimizer.param_groups]
    if optimizer.state:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for index, values in saved["state"].items():
            own = optimizer.state[parameters[index]]
            for name, value in values.items():
                if isinstance(own.get(name), Tensor):
                    own[name].copy_(value)
                else:
                    own[name] = value
    else:  # without a warm-up no step has made any state, so nothing holds it yet
        optimizer.load_state_dict(saved)
    for group, rate, found in zip(optimizer.param_groups, rates, saved["param_groups"], strict=True):
        group["lr"] = rate.copy_(found["lr"]) if isinstance(rate, Tensor) else float(found["lr"])
        group.update({name: value for name, value in found.items() if name not in ("params", "lr")})
