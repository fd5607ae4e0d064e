"""Plain numbers that a user's code counts in attributes, a step for an annealed weight say: kept and put back.

They move with each step, in the warm-up too, and are no tensors that a net's state holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

Numbers = list[tuple[Any, dict[str, Any]]]
"""Objects, each with the numbers among its attributes."""


def numbers_of(*owners: Any) -> Numbers:
    """The numbers that objects hold now, of a net those of each of its modules."""
    parts = [p for owner in owners for p in (owner.modules() if isinstance(owner, nn.Module) else [owner])]
    return [(part, plain_numbers(part)) for part in parts if hasattr(part, "__dict__")]


def plain_numbers(owner: Any) -> dict[str, Any]:
    """The numbers among an object's own attributes."""
    return {name: value for name, value in vars(owner).items() if isinstance(value, int | float)}


def put_back_numbers(kept: Numbers) -> None:
    """Puts numbers where they were; one that has hidden its class's since then goes."""
    for owner, numbers in kept:
        for name in plain_numbers(owner).keys() - numbers.keys():
            if hasattr(type(owner), name):
                del owner.__dict__[name]
        owner.__dict__.update(numbers)


@contextlib.contextmanager
def untouched(owner: Any) -> Iterator[None]:
    """Within it an object may get other attributes; behind it it has those of before.

    For passes on shapes alone: a mean that a loss keeps of its scores would be a tensor without a value.
    """
    kept = dict(getattr(owner, "__dict__", {}))
    try:
        yield
    finally:
        for name in getattr(owner, "__dict__", {}).keys() - kept.keys():
            del owner.__dict__[name]
        getattr(owner, "__dict__", {}).update(kept)
