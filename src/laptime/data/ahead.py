"""Work in a pool, a few items ahead of whoever takes the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar

_LOOK_EVERY_S = 0.2

T = TypeVar("T")
R = TypeVar("R")


def in_order(submit: Callable[[T], Future[R]], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Submits items, at most `ahead` before the one whose result is due; results in the order of the items."""
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(submit(item))
        if len(waiting) >= ahead:
            yield _result(waiting.popleft())
    while waiting:
        yield _result(waiting.popleft())


def _result(future: Future[R]) -> R:
    # Python runs signal handlers in the main thread alone. Where the kernel gave the signal to another thread, a wait
    # without end would never hear of it.
    while not future.done():
        wait([future], timeout=_LOOK_EVERY_S)
    return future.result()
