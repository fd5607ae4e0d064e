"""Optimizers that train other weights than they judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


def has_modes(optimizer: object) -> bool:
    """Whether an optimizer has a mode to train in and one to judge the net in, as those without a schedule have.

    Source: Defazio et al. 2024 (arXiv:2405.15682).
    """
    return callable(getattr(optimizer, "train", None)) and callable(getattr(optimizer, "eval", None))


def set_mode(optimizer: object, mode: Literal["train", "eval"]) -> None:
    """Puts an optimizer that has modes into one of them, which moves the net's weights in place."""
    if has_modes(optimizer):
        getattr(optimizer, mode)()


@contextmanager
def as_judged(optimizer: object) -> Iterator[None]:
    """Within it the net has the weights by which its optimizer would have it judged."""
    set_mode(optimizer, "eval")
    try:
        yield
    finally:
        set_mode(optimizer, "train")
