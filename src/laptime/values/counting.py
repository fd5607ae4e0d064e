"""Where else than in attributes of its objects a user's code counts: in containers, closures and functions."""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler

# Parts of what counts: more are data, or what was computed once. Places that are looked at in all.
_FEW, _MOST = 100, 10_000
_SEQUENCES, _DICTIONARIES = (list, deque, set), (dict, OrderedDict, defaultdict, Counter)
_OF_MODULES = frozenset(vars(nn.Module()))
_NAMESPACES = (SimpleNamespace, argparse.Namespace)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
# What draws for the whole process, which is seeded for each run.
_OF_PROCESS: Any = (random._inst, np.random.mtrand._rand, torch.default_generator)
# What reads data may be read by workers, which count apart; what steps a net is made anew.
_APART: Any = (Tensor, Dataset, DataLoader, Sampler, Optimizer, LRScheduler, ModuleType, BaseException, Enum)

Named = tuple[str, Any]
Looked = tuple[Any, list[Named]]
"""What counts of a value, or None, and what it holds."""


class Place:
    """Something without attributes, as if what it holds were some.

    Of a list, a deque or a set that is all its parts as a tuple, under the name that it has; of a dictionary its
    entries; of a closure what a name of it stands for; of an object its attributes.

    Args:
        owner: what it is.
        name: what the user's code calls it.
        flags: whether it has flags, and parts that are no numbers: where all share it, both may say that something has
            been done once.
    """

    def __init__(self, owner: Any, name: str, flags: bool) -> None:
        self.owner, self.name, self.flags = owner, name, flags
        self.parts = list(map(id, owner)) if isinstance(owner, _SEQUENCES) else []

    def held(self) -> dict[Any, Any]:
        """By name what it holds."""
        owner = self.owner
        if isinstance(owner, _SEQUENCES):
            return {self.name: tuple(owner)} if self.flags or all(map(_is_number, owner)) else {}
        if isinstance(owner, CellType):
            found = {self.name: owner.cell_contents} if _is_filled(owner) else {}
        else:
            # A dictionary's plain method: one of a library's own may load what it holds only when it is asked.
            found = dict(dict.items(owner)) if isinstance(owner, dict) else held_by(owner)
        return {name: value for name, value in found.items() if self.flags or not isinstance(value, bool)}

    def moved(self) -> bool:
        """Whether a list, a deque or a set has other parts by now, of whatever kind."""
        return isinstance(self.owner, _SEQUENCES) and self.parts != list(map(id, self.owner))

    def called(self, name: Any) -> str:
        """What the user's code calls something that it holds."""
        return f"{self.name}[{name!r}]" if isinstance(self.owner, dict) else str(name)

    def put(self, name: Any, value: Any) -> None:
        """Has it hold something else under a name; what is shared and no longer holds numbers alone stays."""
        owner = self.owner
        if isinstance(owner, CellType):
            owner.cell_contents = value
        elif isinstance(owner, dict):
            owner[name] = value
        elif isinstance(owner, _SEQUENCES):
            self._fill(value)
        else:
            object.__setattr__(owner, name, value)

    def _fill(self, parts: tuple[Any, ...]) -> None:
        owner: Any = self.owner
        same = len(owner) == len(parts) and all(one is other for one, other in zip(owner, parts, strict=True))
        if same or not self.held():
            return
        owner.clear()
        (owner.update if isinstance(owner, set) else owner.extend)(parts)

    def drop(self, name: Any) -> None:
        """Takes a name away that has come to be."""
        if isinstance(self.owner, dict):
            del self.owner[name]
        elif hasattr(self.owner, name):
            object.__delattr__(self.owner, name)


class Moving(Place):
    """A small array of numbers, or what draws random numbers: one plain value under its name, changed in place.

    Of an array its numbers, of a generator a text that says where it is.
    """

    def held(self) -> dict[Any, Any]:
        """See `Place`."""
        one = self.owner
        return {self.name: tuple(one.ravel().tolist()) if isinstance(one, np.ndarray) else _place(one)}

    def put(self, name: Any, value: Any) -> None:
        """See `Place`; what has another size by now stays, and a state that is of another kind of generator."""
        one = self.owner
        if isinstance(one, np.ndarray):
            if one.size == len(value):
                one[...] = np.array(value, one.dtype).reshape(one.shape)
            return
        state = json.loads(value)
        if isinstance(one, random.Random):
            one.setstate((state[0], tuple(state[1]), state[2]))
        elif isinstance(one, torch.Generator):
            one.set_state(torch.tensor(state, dtype=torch.uint8))
        elif isinstance(one, np.random.RandomState):
            one.set_state(state)
        else:
            one.bit_generator.state = state


def _place(generator: Any) -> str:
    if isinstance(generator, random.Random):
        state: Any = generator.getstate()
    elif isinstance(generator, torch.Generator):
        state = generator.get_state().tolist()
    elif isinstance(generator, np.random.RandomState):
        state = generator.get_state(legacy=False)
    else:
        state = generator.bit_generator.state
    return json.dumps(state, default=np.ndarray.tolist)


def _moves(one: Any) -> bool:
    """Whether it is what `Moving` is of: nothing that others may have made to behave otherwise, or can't write to."""
    if isinstance(one, np.ndarray):
        return type(one) is np.ndarray and one.dtype.kind in "biuf" and one.size <= _FEW and one.flags.writeable
    return type(one) in _GENERATORS and all(one is not other for other in _OF_PROCESS)


def counting(
    roots: Iterable[Named], is_own: Callable[[Any], bool], known: Iterable[Any], flags: bool = False
) -> list[Any]:
    """What may count among values and what they hold: objects of the user's own, and places; in the same order always.

    Args:
        roots: values with their names.
        is_own: whether the user's code has made an object's class, or a function.
        known: what is left out.
        flags: see `Place`.
    """
    seen = set(map(id, known))
    found, waiting = list[Any](), list(roots)[::-1]
    while waiting and len(seen) < _MOST:
        name, one = waiting.pop()
        if id(one) in seen or isinstance(one, (str, bytes, int, float, type, *_APART)) or one is None:
            continue
        # An array that all share may have been computed once.
        if _moves(one) and (flags or not isinstance(one, np.ndarray)):
            seen.add(id(one))
            found.append(Moving(one, name, flags))
            continue
        counts, parts = _looked_at(name, one, is_own)
        if counts is not None and not isinstance(one, FunctionType):
            whole = flags and hasattr(one, "__dict__") and not isinstance(one, dict | nn.Module)  # a net has its mode
            counts = one if whole else Place(one, name, flags)
        if counts is not None or parts:
            seen.add(id(one))
        found += [] if counts is None else [counts]
        waiting += parts[::-1]
    return found


def _looked_at(name: str, one: Any, is_own: Callable[[Any], bool]) -> Looked:
    """What counts of a value, if anything, and what it holds."""
    if isinstance(one, (tuple, *_SEQUENCES)) or type(one) in _DICTIONARIES:
        return _of_container(name, one)
    if isinstance(one, partial):
        return None, [(name, one.func), *((name, part) for part in (*one.args, *one.keywords.values()))]
    if isinstance(one, MethodType):
        return None, [(name, one.__func__), (name, one.__self__)]
    if isinstance(one, staticmethod | classmethod):
        return None, [(name, one.__func__)]
    if isinstance(one, CellType):
        return one, [(name, one.cell_contents)] if _is_filled(one) else []
    if isinstance(one, FunctionType):
        return _of_function(one) if is_own(one) else (None, [])
    if isinstance(one, nn.Module):
        return one, [*(held_by(one).items() if is_own(type(one)) else ()), *one.named_children()]
    own = is_own(type(one)) or isinstance(one, _NAMESPACES)
    return (one, list(held_by(one).items())) if own else (None, [])


def _of_container(name: str, one: Any) -> Looked:
    if isinstance(one, tuple):  # whose class may have a length of its own, or refuse one
        return None, [(name, value) for value in tuple.__iter__(one)] if tuple.__len__(one) <= _FEW else []
    if len(one) > _FEW:
        return None, []
    if isinstance(one, dict):
        return one, [(f"{name}[{key!r}]", value) for key, value in one.items()]
    return one, [] if isinstance(one, set) else [(name, value) for value in one]  # a set's are in no order


def _of_function(one: Any) -> Looked:
    decorating = one.__globals__.get("__name__") != one.__module__  # a library's: what it knows is its own affair
    cells = [] if decorating else [*zip(one.__code__.co_freevars, one.__closure__ or (), strict=True)]
    given = [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
    return one, [*cells, *((one.__name__, value) for value in given), *vars(one).items()]


def held_by(one: Any) -> dict[str, Any]:
    """An object's attributes; of a net none of torch's own, of what has slots its fields."""
    if hasattr(one, "__dict__"):
        return {n: v for n, v in vars(one).items() if not (isinstance(one, nn.Module) and n in _OF_MODULES)}
    named = fields(one) if is_dataclass(one) else ()
    return {field.name: getattr(one, field.name) for field in named if hasattr(one, field.name)}


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asked for what it raises
    except ValueError:  # of a name that has no value as yet
        return False
    return True


def is_few(value: Any, flags: bool) -> bool:
    """Whether it is a list, a deque or a set of some numbers, or a small array where `flags` are no matter either."""
    if isinstance(value, np.ndarray):
        return flags and _moves(value)
    return type(value) in _SEQUENCES and len(value) <= _FEW and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_number, value))
    return isinstance(value, int | float) and not isinstance(value, bool)
