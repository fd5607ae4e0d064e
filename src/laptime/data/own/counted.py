"""What reading a user's items and making batches of them changes in objects: nothing puts it back behind a warm-up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laptime.data.own.opened import OwnData, OwnSplit
from laptime.data.own.workers import item_makers
from laptime.own.user_code import place_in
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.tallies import plain_numbers

_ITEMS = 8
# A data set within others, transforms within a list: more than that is data, not what reads it.
_MOST_PARTS = 20
_MOST_OBJECTS = 500
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)

Marks = dict[tuple[int, str], str]


def moved_by_reading(data: OwnData) -> str:
    """Says what a second reading of the same items changes, a counter or a generator; empty where it changes nothing.

    A first one may fill what is read once. What a workload itself counts is put back.
    """
    found = dict[str, None]()
    for split in (data.train, data.test):
        chosen, before = range(min(_ITEMS, len(split))), drawn()
        with suppress(Exception):  # whatever a user's code raises, sometimes: it was read before
            split.batch(chosen)
            was = _marks(split, data.workload)
            split.batch(chosen)
            now = _marks(split, data.workload)
            found |= dict.fromkeys(key[1] for key, mark in was.items() if now.get(key, mark) != mark)
        put_back_drawn(before)
    if not found:
        return ""
    place = place_in(data.file, (), (data.train.collate, *item_makers(data.train), data.workload.data))
    return (
        f"reading items of {data.file.name} changes {', '.join(found)}{place}, which goes on from the warm-up, is "
        "another in each loader worker and is in no checkpoint: draw from torch, random or np.random, and count in "
        "loss(), in attributes of the workload."
    )


def _marks(split: OwnSplit, user: object) -> Marks:
    """By object and name, where the generators and the numbers are that a split's objects hold."""
    found = Marks()
    for owner in _objects([split.dataset, split.collate], user):
        kind, numbers = type(owner).__name__, plain_numbers(owner)
        found |= {(id(owner), f"{name} of its {kind}"): repr(n) for name, n in numbers.items() if name != "training"}
        held = ((name, value) for name, value in vars(owner).items() if isinstance(value, _GENERATORS))
        found |= {(id(owner), f"{name} of its {kind}"): _place(generator) for name, generator in held}
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


def _place(generator: Any) -> str:
    """Where a generator is."""
    if isinstance(generator, torch.Generator):
        return repr(generator.get_state().tolist())
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    return repr(generator.getstate() if isinstance(generator, random.Random) else generator.get_state(legacy=False))
