"""What steps of a user's own training carry along where nothing puts it back: it goes on from the warm-up."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from laptime.data.lightning.module import LightningWorkload
from laptime.data.lightning.steps import Steps, is_metric
from laptime.values.copies import resize
from laptime.values.counting import Place
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.tallies import Numbers, changed, globals_of, numbers_of, plain_numbers, put_back_numbers

# Two losses of the same numbers.
_ALIKE = 1e-5
_FEW = 1000
_LARGE = 2**26
_MOST_NAMED = 5
_MODE = "training"
LEFT_OUT = "leave train() out, since laptime calls it before it trains"
_CONTAINERS = (list, tuple, dict, set, deque)
# A hook's handle numbers it, and no step reads that.
_COUNTED_ELSEWHERE = (Tensor, nn.Module, type, FunctionType, ModuleType, RemovableHandle)
_OF_MODULES = frozenset(vars(nn.Module()))

Marks = dict[tuple[int, str], tuple[Any, object]]
"""By object and attribute: what keeps its parts alive, since another object may have their ids, and what it shows."""


class Start:
    """Where a user's object and a net are before a step: what a run puts back behind its warm-up, and all else."""

    def __init__(self, user: object, model: nn.Module) -> None:
        self.user, self.model = user, model
        self.drawn, self.numbers = drawn(), [*numbers_of(user, model), *globals_of(user, model)]
        self.buffers = {name: b.clone() for name, b in model.named_buffers() if b.layout == torch.strided}
        self.marks, self.sizes = _marks(user, model), _sizes(model)
        self.unset = _unset(user, model)

    @torch.no_grad()
    def back(self) -> None:
        """Puts numbers, buffers and draws back, as a run does behind its warm-up; it does so with weights, too."""
        put_back_numbers(self.numbers)
        put_back_drawn(self.drawn)
        for name, buffer in self.model.named_buffers():
            was = self.buffers.get(name)
            if was is not None and not was.numel():
                resize(buffer, was)
            # What has not changed is left: nothing can be written to a buffer that expand() shows in several places.
            if was is not None and was.shape == buffer.shape and not torch.equal(buffer, was):
                buffer.copy_(was)

    def filled(self) -> tuple[str, ...]:
        """The names of buffers that were empty and are not."""
        now = dict(self.model.named_buffers())
        return tuple(n for n, was in self.buffers.items() if not was.numel() and n in now and now[n].numel())

    def set_weights(self) -> bool:
        """Whether the net has set weights itself since then, from its first batch perhaps: no optimizer has."""
        return self.sizes != _sizes(self.model)

    def kept(self) -> tuple[str, ...]:
        """The names of attributes that hold other tensors or other parts than then, where they held any."""
        now = _marks(self.user, self.model)
        return _others(dict.fromkeys(now, ([], None)) | self.marks, now)

    def read(self, loss: Callable[[], float]) -> tuple[tuple[str, ...], tuple[float, float]]:
        """Attributes that were None and hold what steps have left there; losses without and with that.

        On other samples than those of the steps: a mean of one batch alone is what it was for that batch.

        Args:
            loss: gives that of other samples.
        """
        begun = [place for place in self.unset if isinstance(vars(place[0]).get(place[1]), Tensor)]
        if not begun:
            return (), (0.0, 0.0)
        self.back()
        later = loss()
        for owner, name in begun:
            setattr(owner, name, None)
        self.back()
        first = loss()
        return tuple(dict.fromkeys(name for _, name in begun)), (first, later)


class Judging:
    """What a user's object counts, and what a net holds, before test data go through them."""

    def __init__(self, user: object, model: nn.Module) -> None:
        self.model, self.tensors = model, _held(model)
        self.numbers = [*numbers_of(user, model), *globals_of(user, model)]

    def moved(self) -> tuple[str, ...]:
        """The names of numbers and of tensors that are others now."""
        now = _held(self.model)
        names = [name for name, held in self.tensors.items() if name in now and now[name] != held]
        return (*changed(self.numbers, numbers_alone=True), *names)


class Counting:
    """The numbers in objects of other libraries that a user's object or net holds, which nothing puts back."""

    def __init__(self, user: object, model: nn.Module, numbers: Numbers) -> None:
        """Takes the numbers that are put back."""
        self.user, self.model = user, model
        self.known = {id(owner.owner if isinstance(owner, Place) else owner) for owner, _, _ in numbers}
        self.marks = _counts(user, model, self.known)

    def moved(self) -> tuple[str, ...]:
        """The names of attributes whose objects count."""
        return _others(self.marks, _counts(self.user, self.model, self.known))


@dataclass(frozen=True)
class Carried:
    """What steps carry along.

    Attributes:
        names: of attributes, or what stands for them; empty where they carry nothing.
        told: what to say of it.
    """

    names: tuple[str, ...] = ()
    told: str = ""


def carried(line: str, objects: tuple[str, ...], kept: tuple[str, ...], losses: tuple[float, float]) -> Carried:
    """What steps carry along, as far as the loss of one batch or a count in an object shows.

    Args:
        line: what gives the loss, with its line.
        objects: attributes whose objects count.
        kept: attributes that hold other tensors or parts than before, as many do that are made anew in each step.
        losses: that of a batch, and that after steps, with the same weights, buffers, numbers and draws.
    """
    differs = not _alike(*losses)
    names = tuple(dict.fromkeys((*objects, *(kept if differs else ()))))
    if not names and not differs:
        return Carried()
    gives = "gives {:.6g} for a batch and some steps later {:.6g} with the same weights and random numbers; "
    # Losses tell that something is carried along, not which of several attributes it is.
    which = ", or in one of these," if len(names) > 1 else ""
    held = f"what it changes in {', '.join(names)}{which}" if names else "what it keeps from step to step"
    seen = gives.format(*losses) if differs else "counts in objects: "
    remedy = "keep tensors as buffers of the net, and count in attributes of the net or of the workload itself"
    goes_on = "goes on from the warm-up unless the losses of the first batches show it, and is in no checkpoint"
    told = f"{line} {seen}{held} {goes_on}: {remedy}."
    return Carried(names or ("what it keeps",), told)


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ALIKE, abs_tol=_ALIKE**2)


def moved_by_tests(line: str, names: tuple[str, ...], remedy: str = "") -> str:
    """What to say of what test data change; empty where they change nothing.

    Args:
        line: what gives the loss, with its line.
        names: of what is changed.
        remedy: what helps where they go through the net in training mode; empty where they don't.
    """
    if remedy or any(name.rpartition(".")[2] == _MODE for name in names):
        return (
            f"{line} puts the net into training mode with test data, too, which are judged under dropout then, and "
            f"teach BatchNorm: {remedy or LEFT_OUT}."
        )
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    named = ", ".join(names[:_MOST_NAMED]) + more
    held = f"{line} changes {named} with test data, too, which training then goes on with"
    return f"{held}: change it only where model.training is set." if names else ""


@torch.no_grad()
def _held(model: nn.Module) -> dict[str, tuple[float, ...]]:
    """By name what tells that a net's tensors have changed, written through `.data` too, without a copy of them.

    Weights that are trained may be set to what they are but for rounding, by a norm that is kept say.
    """
    found = dict[str, tuple[float, ...]]()
    for name, tensor in (*model.named_buffers(), *model.named_parameters()):
        size = _size(tensor)
        found[name] = (_version(tensor), float(f"{size:.5g}") if tensor.requires_grad else size)
    return found


def _size(tensor: Tensor) -> float:
    """What is another number for other values; 0 of what is sparse, for which not all of torch is there."""
    if tensor.layout != torch.strided:
        return 0.0
    return float((tensor.abs() if tensor.is_floating_point() or tensor.is_complex() else tensor.long()).sum())


def _owners(user: object, model: nn.Module) -> Iterator[Any]:
    """The user's object and the parts of the net, but for metrics, which are reset, and what a module has logged."""
    if not isinstance(user, LightningWorkload) and hasattr(user, "__dict__"):
        yield user
    yield from (m for m in model.modules() if not isinstance(m, Steps) and not is_metric(m))


def _marks(user: object, model: nn.Module) -> Marks:
    """What attributes hold: which tensors, written to how often, and which parts of lists."""
    found = Marks()
    for owner in _owners(user, model):
        for name, value in vars(owner).items():
            if name not in _OF_MODULES and isinstance(value, (Tensor, np.ndarray, *_CONTAINERS)):
                parts = [value] if isinstance(value, Tensor | np.ndarray) else [*value][:_FEW]
                parts = [value[part] for part in parts] if isinstance(value, dict) else parts
                found[id(owner), name] = (parts, [(id(part), _version(part)) for part in parts])
    return found


def _unset(user: object, model: nn.Module) -> list[tuple[Any, str]]:
    """Attributes that are None as yet, each with its object."""
    return [(owner, name) for owner in _owners(user, model) for name, value in vars(owner).items() if value is None]


def _sizes(model: nn.Module) -> list[float]:
    """What tells that weights have changed, without a copy of them."""
    with torch.no_grad():
        return [_size(p) for p in model.parameters()]


def _version(value: object) -> int:
    if isinstance(value, np.ndarray):  # which counts no versions
        return hash(value.tobytes()) if value.nbytes <= _LARGE and not value.dtype.hasobject else 0
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _counts(user: object, model: nn.Module, known: set[int]) -> Marks:
    """The numbers of objects that attributes hold, but for those that are known, and where `itertools.count` is."""
    held = [(owner, name, value) for owner in _owners(user, model) for name, value in vars(owner).items()]
    objects = {
        (id(owner), name): (value, repr(sorted(plain_numbers(value).items())))
        for owner, name, value in held
        if hasattr(value, "__dict__") and id(value) not in known and not isinstance(value, _COUNTED_ELSEWHERE)
    }
    return objects | {(id(owner), name): (value, repr(value)) for owner, name, value in held if type(value) is count}


def _others(before: Marks, now: Marks) -> tuple[str, ...]:
    """The names of attributes that show something else than before, each once."""
    return tuple(dict.fromkeys(key[1] for key, (_, mark) in before.items() if key in now and now[key][1] != mark))
