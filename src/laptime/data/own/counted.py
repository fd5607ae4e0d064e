"""What reading a user's items and making batches of them changes in objects: nothing puts it back behind a warm-up."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing.sharedctypes import SynchronizedBase
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laptime.data.own.opened import OwnData, OwnSplit
from laptime.data.own.refused import same
from laptime.data.own.workers import item_makers
from laptime.own.user_code import place_in
from laptime.values.draws import State, drawn, put_back_drawn
from laptime.values.tallies import Numbers, globals_of, numbers_of, plain_numbers, put_back_numbers
from laptime.values.trees import tensors

_ITEMS = 8
# A data set within others, transforms within a list: more than that is data, not what reads it.
_MOST_PARTS = 20
_MOST_OBJECTS = 500
_MOST_NUMBERS = 10_000
_OTHERS = (
    "are others when they are read again with the same random numbers, so what they depend on (an iterator, a "
    "generator, what was read before) goes on from the warm-up, is another in each loader worker and is in no "
    "checkpoint, or is drawn anew in each run: draw from torch, random or np.random, and let an item follow from its "
    "number."
)
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)

Marks = dict[tuple[int, str], str]


def moved_by_reading(data: OwnData) -> str:
    """Says what a second reading of the same items changes, a counter or a generator; empty where it changes nothing.

    A first one may fill what is read once. What a workload itself counts is put back. Where nothing of that is seen,
    items that are others with the same random numbers tell that something goes on, in a closure or an iterator say.
    """
    found, others = dict[str, None](), False
    held = [*numbers_of(data.workload), *globals_of(data.workload)]
    for split in (data.train, data.test):
        chosen, before = range(min(_ITEMS, len(split))), drawn()
        with suppress(Exception):  # whatever a user's code raises, sometimes: it was read before
            split.batch(chosen)
            was = _marks(split, data.workload)
            split.batch(chosen)
            now = _marks(split, data.workload)
            found |= dict.fromkeys(key[1] for key, mark in was.items() if now.get(key, mark) != mark)
            _begin_anew(before, held)
            read = [t.clone() for t in tensors(split.batch(chosen))]
            _begin_anew(before, held)
            others |= not same(split.batch(chosen), read)
        _begin_anew(before, held)
    place = place_in(data.file, (), (data.train.collate, *item_makers(data.train), data.workload.data))
    if not found:
        return f"items of {data.file.name}{place} {_OTHERS}" if others else ""
    return (
        f"reading items of {data.file.name} changes {', '.join(found)}{place}, which goes on from the warm-up, is "
        "another in each loader worker and is in no checkpoint: draw from torch, random or np.random, and count in "
        "loss(), in attributes of the workload."
    )


def _begin_anew(before: State, held: Numbers) -> None:
    """Puts back what a run puts back behind its warm-up: draws, and what workload and globals hold."""
    put_back_drawn(before)
    put_back_numbers(held)


def _marks(split: OwnSplit, user: object) -> Marks:
    """By object and name, where the generators and the numbers are that a split's objects hold."""
    found = Marks()
    for owner in _objects([split.dataset, split.collate], user):
        kind, numbers = type(owner).__name__, plain_numbers(owner)
        found |= {(id(owner), f"{name} of its {kind}"): repr(n) for name, n in numbers.items() if name != "training"}
        held = ((name, _place(value)) for name, value in vars(owner).items())
        found |= {(id(owner), f"{name} of its {kind}"): place for name, place in held if place}
    return found


def _objects(begun: list[Any], user: object) -> Iterator[Any]:
    """Objects that hold attributes, and those that they hold, each once; not the workload itself."""
    waiting, seen = list(begun), {id(user)}
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, (Tensor, np.ndarray, type, ModuleType, *_GENERATORS)):
            continue
        seen.add(id(value))
        waiting += _parts(value)
        if hasattr(value, "__dict__"):
            yield value


def _parts(value: Any) -> list[Any]:
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, list | tuple | dict):
        held = list(value.values()) if isinstance(value, dict) else list(value)
        return held if len(held) <= _MOST_PARTS else []
    if hasattr(value, "__func__"):  # a bound method
        return [value.__self__]
    return list(getattr(value, "__dict__", {}).values())


def _place(value: Any) -> str:
    """Where a generator, a counter or an array of counters is; empty of anything else."""
    if isinstance(value, torch.Generator):
        return repr(value.get_state().tolist())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, random.Random):
        return repr(value.getstate())
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if isinstance(value, SynchronizedBase | count):
        return repr(value)
    return _numbers_in(value) if isinstance(value, Tensor | np.ndarray) else ""


def _numbers_in(array: Tensor | NDArray[Any]) -> str:
    """The numbers of a small array: what has more of them is data, not what counts."""
    if math.prod(array.shape) > _MOST_NUMBERS or (isinstance(array, Tensor) and array.layout != torch.strided):
        return ""
    return repr(array.tolist())
