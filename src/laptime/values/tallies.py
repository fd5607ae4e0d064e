"""Plain values that a user's code keeps in attributes, a step for an annealed weight say, or the name of a phase: kept
and put back.

They move with each step, in the warm-up too, and are no tensors that a net's state holds. So does whether a parameter
is trained, where a loss unfreezes layers after some steps.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections import deque
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode

# A tuple of more is data.
_MOST_PARTS = 100

Numbers = list[tuple[Any, dict[str, Any], frozenset[str]]]
"""Objects, each with the plain values among its attributes, and the names of all of these."""


def numbers_of(*owners: Any) -> Numbers:
    """The plain values that objects hold now, of a net those of each of its modules and parameters."""
    return _held_by(_parts(owners))


def globals_of(*owners: Any) -> Numbers:
    """The same of globals and classes, in the user's own modules that objects come from and those used there."""
    parts: list[Any] = []
    for module in own_modules(_parts(owners)):
        kinds = [value for value in vars(module).values() if isinstance(value, type) and not issubclass(value, Enum)]
        parts += [module, *(kind for kind in kinds if kind.__module__ == module.__name__)]
    return _held_by(parts)


def _parts(owners: tuple[Any, ...]) -> list[Any]:
    parts: list[Any] = []
    for owner in owners:
        parts += [*owner.modules(), *owner.parameters()] if isinstance(owner, nn.Module) else [owner]
    return parts


def _held_by(parts: list[Any]) -> Numbers:
    return [(part, plain_values(part), frozenset(vars(part))) for part in parts if hasattr(part, "__dict__")]


def own_modules(parts: list[Any]) -> list[ModuleType]:
    """The user's own modules that objects' classes stand in, and those of which these use something."""
    kinds = dict.fromkeys(kind for part in parts for kind in type(part).__mro__)
    waiting = [sys.modules.get(kind.__module__) for kind in kinds]
    found = dict[int, ModuleType]()
    while waiting:
        module = waiting.pop(0)
        if module is None or id(module) in found or not is_own(module):
            continue
        found[id(module)] = module
        used = [value for value in vars(module).values() if isinstance(value, type | FunctionType | ModuleType)]
        waiting += [value if isinstance(value, ModuleType) else sys.modules.get(value.__module__) for value in used]
    return list(found.values())


def is_own(module: ModuleType) -> bool:
    """Whether a module is neither Python's nor installed nor laptime's."""
    name, file = module.__name__.partition(".")[0], Path(str(vars(module).get("__file__") or ""))
    others = name in sys.stdlib_module_names or name == "laptime" or file == Path()
    return not others and {"site-packages", "dist-packages"}.isdisjoint(file.parts)


def plain_values(owner: Any) -> dict[str, Any]:
    """The plain values among an object's own attributes; of a parameter whether it is trained.

    Of a module and a class no flags: they say that something has been done once (a library loaded, operators
    registered), which is not undone with them.
    """
    if isinstance(owner, nn.Parameter):
        return {"requires_grad": owner.requires_grad}
    found = {name: value for name, value in vars(owner).items() if is_plain(value) and not name.startswith("__")}
    shared = isinstance(owner, ModuleType | type)
    return {name: value for name, value in found.items() if not (shared and isinstance(value, bool))}


def is_plain(value: object) -> bool:
    """Whether a value can't change in itself: a number, also numpy's, a text, None, an enum's, a tuple of such."""
    if isinstance(value, tuple):
        return len(value) <= _MOST_PARTS and all(map(is_plain, value))
    return value is None or isinstance(value, int | float | str | Enum | np.integer | np.floating | np.bool_)


def put_back_numbers(kept: Numbers) -> None:
    """Puts plain values where they were; what has come to be since then goes, where nothing else came with it.

    What was None and is an object or a tensor by now stays: it may be what was loaded or computed once.
    """
    for owner, values, names in kept:
        if not isinstance(owner, nn.Parameter):
            come = {name for name in vars(owner) if not name.startswith("__")} - names
            other = any(not is_plain(vars(owner)[name]) for name in come)
            for name in come & plain_values(owner).keys():
                if hasattr(type(owner), name) or not other:
                    _delete(owner, name)
        set_values(owner, values)


def set_values(owner: Any, values: dict[str, Any]) -> None:
    """Gives an object plain values in attributes, where it has others there."""
    now = {"requires_grad": owner.requires_grad} if isinstance(owner, nn.Parameter) else vars(owner)
    for name, value in values.items():
        if now.get(name) is value or (value is None and not is_plain(now.get(name))):
            continue
        if isinstance(owner, type | nn.Parameter):
            setattr(owner, name, value)
        else:
            now[name] = value  # which an object may not let others set


def _delete(owner: Any, name: str) -> None:
    if isinstance(owner, type):
        delattr(owner, name)
    else:
        del vars(owner)[name]


def plain_numbers(owner: Any) -> dict[str, Any]:
    """The numbers among an object's own attributes; of a parameter whether it is trained."""
    if isinstance(owner, nn.Parameter):
        return {"requires_grad": owner.requires_grad}
    return {name: value for name, value in vars(owner).items() if isinstance(value, int | float)}


def changed(kept: Numbers, numbers_alone: bool = False) -> tuple[str, ...]:
    """The names of plain values, or of numbers alone, that are others now, each once."""
    found = [(values, plain_values(owner)) for owner, values, _ in kept]
    both = ((name, was.get(name), value) for was, now in found for name, value in now.items())
    others = ((name, value) for name, was, value in both if was is not value and repr(was) != repr(value))  # of nan
    return tuple(dict.fromkeys(n for n, value in others if isinstance(value, int | float) or not numbers_alone))


@contextlib.contextmanager
def untouched(owner: Any) -> Iterator[None]:
    """Within it an object may get other attributes and more in its lists; behind it it has what it had before.

    For passes on shapes alone: a mean that a loss keeps of its scores would be a tensor without a value, and so would
    the weights of a net that it holds and moves to the device of its batch.
    """
    own = getattr(owner, "__dict__", {})
    kept = dict(own)
    parts = [part for net in kept.values() if isinstance(net, nn.Module) for part in net.modules()]
    places: list[Any] = [place for part in parts for place in (part._parameters, part._buffers)]
    placed = [(place, dict(place)) for place in places if isinstance(place, dict)]  # torch.jit has others
    own.update({name: copy.copy(value) for name, value in kept.items() if isinstance(value, list | dict | set | deque)})
    try:
        yield
    finally:
        for name in own.keys() - kept.keys():
            del own[name]
        own.update(kept)
        for place, before in placed:
            place.update(before)


class Unwritten(TorchDispatchMode):
    """Within it operations may write over any tensor, whoever holds it; behind it each has the values of before.

    Their schemas say what they write to, but for the running statistics of BatchNorm. Of each memory a copy is taken
    before its first write.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, behind a copy of what it is about to write to."""
        arguments, named = func._schema.arguments, dict(kwargs or {})
        named.update(zip((argument.name for argument in arguments), args, strict=False))
        for argument in arguments:
            if (argument.alias_info and argument.alias_info.is_write) or argument.name.startswith("running_"):
                given = named.get(argument.name)
                for written in given if isinstance(given, list | tuple) else [given]:
                    self._keep(written)
        return func(*args, **(kwargs or {}))

    def _keep(self, written: object) -> None:
        if isinstance(written, Tensor) and written.layout == torch.strided and not written.is_meta:
            storage = written.untyped_storage()
            if storage._cdata not in self._before:
                self._before[storage._cdata] = (storage, storage.clone())

    def __exit__(self, *error: Any) -> None:
        """Ends it."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for storage, before in self._before.values():
            if storage.nbytes() == before.nbytes():
                storage.copy_(before)
        self._before = {}
