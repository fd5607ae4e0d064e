"""What holds a training up inside its own process: Python's garbage collector, and the system's kernel."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from laptime.measure.marks import Clock

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Held:
    """What of an epoch was held up.

    Attributes:
        gc_s: seconds in the garbage collector.
        system_s: CPU seconds that the kernel worked for the process, all its threads; None where no system tells.
        page_faults: pages of memory that it mapped meanwhile, none of them read from a disk; None likewise.
    """

    gc_s: float
    system_s: float | None = None
    page_faults: int | None = None


class Pauses:
    """Adds up the collector's passes; it tells their begin and end itself, so nothing is added to a step."""

    def __init__(self, clock: Clock = perf_counter_ns) -> None:
        """Counts from here on."""
        self._clock, self._began, self._ns = clock, 0, 0
        self._used = _used()

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """See `gc.callbacks`."""
        if phase == "start":
            self._began = self._clock()
        else:
            self._ns += self._clock() - self._began

    @property
    def held(self) -> Held:
        """Until now."""
        seconds, used = self._ns / 1e9, _used()
        if used is None or self._used is None:
            return Held(seconds)
        return Held(seconds, used[0] - self._used[0], used[1] - self._used[1])


def _used() -> tuple[float, int] | None:
    if resource is None:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_stime, used.ru_minflt


@contextlib.contextmanager
def watched_pauses(clock: Clock = perf_counter_ns) -> Iterator[Pauses]:
    """Watches over the block."""
    pauses = Pauses(clock)
    gc.callbacks.append(pauses)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(pauses)
