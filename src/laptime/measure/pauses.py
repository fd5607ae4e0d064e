"""How long Python's garbage collector holds the training up."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

from laptime.measure.marks import Clock


class Pauses:
    """Adds up the collector's passes; it tells their begin and end itself, so nothing is added to a step."""

    def __init__(self, clock: Clock = perf_counter_ns) -> None:
        self._clock, self._began, self._ns = clock, 0, 0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """See `gc.callbacks`."""
        if phase == "start":
            self._began = self._clock()
        else:
            self._ns += self._clock() - self._began

    @property
    def seconds(self) -> float:
        """In the collector so far."""
        return self._ns / 1e9


@contextlib.contextmanager
def watched_collector(clock: Clock = perf_counter_ns) -> Iterator[Pauses]:
    """Watches the collector inside of the block."""
    pauses = Pauses(clock)
    gc.callbacks.append(pauses)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(pauses)
