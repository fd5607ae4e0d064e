"""Where a step's time goes: host marks at the borders of its parts."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

Clock = Callable[[], int]


class StepMarks:
    """Adds up the time between marks by part; well under a microsecond a mark.

    The time between a step's last mark and `end_step` belongs to the part `rest`.
    """

    def __init__(self, clock: Clock = perf_counter_ns) -> None:
        self._clock = clock
        self._last = 0
        self._begin = 0
        self.totals_ns: dict[str, int] = {}
        self.steps_ns = array("q")

    def start(self) -> None:
        """Starts an epoch: forgets what was, begins the first step."""
        self.totals_ns = {}
        self.steps_ns = array("q")
        self._last = self._begin = self._clock()

    def __call__(self, part: str) -> None:
        now = self._clock()
        self.totals_ns[part] = self.totals_ns.get(part, 0) + now - self._last
        self._last = now

    def end_step(self) -> None:
        """Ends a step and begins the next."""
        self("rest")
        self.steps_ns.append(self._last - self._begin)
        self._begin = self._last

    def parts_s(self) -> dict[str, float]:
        """Seconds by part since `start`."""
        return {part: ns / 1e9 for part, ns in self.totals_ns.items()}

    def step_ms_median(self) -> float | None:
        """Median duration of a step in milliseconds; None without steps."""
        return median(self.steps_ns) / 1e6 if self.steps_ns else None
