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

from laptime.values.counting import Moving, Named, Place, counting, held_by, is_few

# A tuple of more is data.
_MOST_PARTS = 100

Numbers = list[tuple[Any, dict[str, Any], frozenset[str]]]
"""Objects, each with the plain values among its attributes, and the names of all of these."""


def numbers_of(*owners: Any) -> Numbers:
    """The plain values that objects hold now, of a net those of each of its modules and parameters.

    So it is with what these hold: objects of the user's own, containers of numbers, closures and functions.
    """
    parts = _parts(owners)
    return _held_by([*parts, *counting(_named_values(parts), is_users, parts, flags=True)])


def globals_of(*owners: Any) -> Numbers:
    """The same of globals and classes, in the user's own modules that objects come from and those used there."""
    known = _parts(owners)
    parts: list[Any] = []
    for module in own_modules(known):
        kinds = [value for value in vars(module).values() if isinstance(value, type) and not issubclass(value, Enum)]
        parts += [module, *(kind for kind in kinds if kind.__module__ == module.__name__)]
    return _held_by([*parts, *counting(_named_values(parts), is_users, [*known, *parts])])


def _named_values(parts: list[Any]) -> list[Named]:
    """What parts hold, by name: of objects whose classes are not the user's own it is their own affair."""
    looked = [part for part in parts if isinstance(part, type | ModuleType) or is_users(type(part))]
    return [(name, value) for part in looked for name, value in held_by(part).items() if not name.startswith("__")]


def _parts(owners: tuple[Any, ...]) -> list[Any]:
    parts: list[Any] = []
    for owner in owners:
        parts += [*owner.modules(), *owner.parameters()] if isinstance(owner, nn.Module) else [owner]
    return parts


def _held_by(parts: list[Any]) -> Numbers:
    kept = [part for part in parts if hasattr(part, "__dict__")]
    return [(part, values_of(part), frozenset(_all_of(part))) for part in kept]


def _all_of(owner: Any) -> dict[Any, Any]:
    """All that an object or a place holds, by name."""
    return owner.held() if isinstance(owner, Place) else vars(owner)


def is_users(one: Any) -> bool:
    """Whether a class or a function stands in a module of the user's own."""
    module = sys.modules.get(getattr(one, "__module__", None) or "")
    return module is not None and is_own(module)


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
    shared = isinstance(owner, ModuleType | type | FunctionType)
    return {name: value for name, value in found.items() if not (shared and isinstance(value, bool))}


def values_of(owner: Any) -> dict[Any, Any]:
    """The plain values of an object, or of a place; and which lists and small arrays of numbers it holds."""
    if isinstance(owner, nn.Parameter):
        return plain_values(owner)
    held = _all_of(owner)
    flags = owner.flags if isinstance(owner, Place) else not isinstance(owner, ModuleType | type | FunctionType)
    few = {name: value for name, value in held.items() if is_few(value, flags) and not str(name).startswith("__")}
    if isinstance(owner, Place):
        return few | {name: value for name, value in held.items() if is_plain(value)}
    return few | plain_values(owner)


def is_plain(value: object) -> bool:
    """Whether a value can't change in itself: a number, also numpy's, a text, None, an enum's, a tuple of such."""
    if isinstance(value, tuple):  # whose class may have a length of its own, or refuse one
        return tuple.__len__(value) <= _MOST_PARTS and all(map(is_plain, tuple.__iter__(value)))
    return value is None or isinstance(value, int | float | str | Enum | np.integer | np.floating | np.bool_)


def put_back_numbers(kept: Numbers) -> None:
    """Puts plain values where they were; what has come to be since then goes, where nothing else came with it.

    What was None and is an object or a tensor by now stays: it may be what was loaded or computed once.
    """
    for owner, values, names in kept:
        if not isinstance(owner, nn.Parameter):
            now = _all_of(owner)
            come = {name for name in now if not str(name).startswith("__")} - names
            other = len(come) > _MOST_PARTS or any(not is_plain(now[name]) for name in come)
            for name in come & values_of(owner).keys():
                if hasattr(type(owner), str(name)) or not other:
                    _delete(owner, name)
        put_values(owner, values)


def put_values(owner: Any, values: dict[Any, Any]) -> None:
    """Gives an object or a place plain values, where it has others."""
    if not isinstance(owner, Place):
        set_values(owner, values)
        return
    now = owner.held()
    for name, value in values.items():
        if now.get(name) is not value and _gives_way(now.get(name), value):
            owner.put(name, value)


def _gives_way(now: Any, value: Any) -> bool:
    """Whether what stands somewhere now makes room for what stood there: what was loaded or made meanwhile does not."""
    if value is None:
        return is_plain(now)
    return is_plain(value) or is_plain(now) or isinstance(now, list | deque | set | np.ndarray)


def set_values(owner: Any, values: dict[str, Any]) -> None:
    """Gives an object plain values in attributes, where it has others there."""
    now = {"requires_grad": owner.requires_grad} if isinstance(owner, nn.Parameter) else vars(owner)
    for name, value in values.items():
        if now.get(name) is value or not _gives_way(now.get(name), value):
            continue
        if isinstance(owner, type | nn.Parameter):
            setattr(owner, name, value)
        else:
            now[name] = value  # which an object may not let others set


def _delete(owner: Any, name: str) -> None:
    if isinstance(owner, Place):
        owner.drop(name)
    elif isinstance(owner, type):
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
    found = dict[str, None]()
    for owner, was, _ in kept:
        now = values_of(owner)
        if isinstance(owner, Place) and owner.moved():
            if owner.flags and not numbers_alone:  # a list that all share is a log of what was done
                found[owner.name] = None
            continue
        for name, value in now.items():
            other = was.get(name) is not value and repr(was.get(name)) != repr(value)  # of nan
            if other and (isinstance(value, int | float) or not numbers_alone):
                found[owner.called(name) if isinstance(owner, Place) else name] = None
    return tuple(found)


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
    counts = counting(_named_values([owner]), is_users, [owner], flags=True)
    moving = [(one, one.held()) for one in counts if isinstance(one, Moving)]
    places += [one.owner if isinstance(one, Place) else vars(one) for one in counts]
    # torch.jit has others; by plain methods, see `Place.held`.
    placed = [(place, dict(dict.items(place))) for place in places if isinstance(place, dict)]
    own.update({name: _copied(value) for name, value in kept.items() if isinstance(value, list | dict | set | deque)})
    try:
        yield
    finally:
        for name in own.keys() - kept.keys():
            del own[name]
        own.update(kept)
        for place, before in placed:
            for name in dict.keys(place) - before.keys():
                del place[name]
            now = dict(dict.items(place))
            other = {name: value for name, value in before.items() if name not in now or now[name] is not value}
            if other:  # one that refuses to be written to has not been
                place.update(other)
        for one, values in moving:
            put_values(one, values)


def _copied(container: Any) -> Any:
    """A copy; itself where its class refuses one, as it does where it refuses to be written to."""
    try:
        return copy.copy(container)
    except Exception:  # of the user's own
        return container


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
