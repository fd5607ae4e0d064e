"""Where a step's time goes: host marks at the borders of its parts."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Clock = Callable[[], int]
"""Nanoseconds."""

REST = "rest"
WORKERS = "workers"
# Room for the marks of a step; a step with more of them makes the buffer grow.
_MARKS_A_STEP = 8
# A CPU clock is a system call and takes longer than a mark, so only some fetches are looked at.
_SAMPLED = 8


class Clocks(NamedTuple):
    """What is read at a mark: wall, CPU time of this thread, CPU time of the process."""

    wall: Clock = perf_counter_ns
    thread: Clock = thread_time_ns
    process: Clock = process_time_ns


class DeviceMarks(Protocol):
    """The same borders on a device's clock."""

    def start(self) -> None:
        """Begins an epoch."""
        ...

    def mark(self, part: str) -> None:
        """Ends a part; waits for nothing."""
        ...

    def end_step(self) -> None:
        """Ends a step; waits for nothing."""
        ...

    def steps_ms(self) -> dict[str, list[float]]:
        """Milliseconds by part of the epoch's steps after the first; the device has finished them."""
        ...


@dataclass(frozen=True)
class EpochTimes:
    """What the marks of an epoch saw.

    Attributes:
        parts: names, in the order in which they first ended.
        ns: nanoseconds of each part in each step [steps, parts]; a part that a step does not have is 0.
        worker_start_ns: starting loader workers, a part of the first step's `data`; None without workers.
        fetch_cpu_ns, fetch_wall_ns: CPU time of this thread and wall time of the fetches that were looked at.
        process_cpu_ns: CPU time of the process, all threads, in the steps after the first.
        device_ms: milliseconds on the device by part, of steps after the first.
    """

    parts: tuple[str, ...]
    ns: NDArray[np.int64]
    worker_start_ns: int | None = None
    fetch_cpu_ns: int = 0
    fetch_wall_ns: int = 0
    process_cpu_ns: int = 0
    device_ms: dict[str, list[float]] = field(default_factory=dict)

    def parts_s(self) -> dict[str, float]:
        """Seconds of the epoch by part."""
        return {part: int(ns) / 1e9 for part, ns in zip(self.parts, self.ns.sum(axis=0), strict=True)}

    def step_ms_median(self) -> float | None:
        """Median duration of a step in milliseconds; None without steps."""
        return median(self.ns.sum(axis=1).tolist()) / 1e6 if len(self.ns) else None


class StepMarks:
    """Notes when each part of each step ends, in a buffer that is made before the epoch; 0.3 microseconds a mark.

    The time between a step's last mark and `end_step` belongs to the part `rest`, which is no name for another part.
    Marks outside of an epoch (warm-up, check) are not kept.
    """

    def __init__(self, clocks: Clocks | None = None) -> None:
        self._clocks = clocks or Clocks()
        self._clock = self._clocks.wall
        self.device: DeviceMarks | None = None
        self._ns = array("q")
        self._names: list[str] = []
        self._at = self._steps = 0
        self._running = False
        self._also: Callable[[str], None] | None = None
        self._fetch_began = self._fetch_cpu = self._fetch_wall = 0
        self._process_began = self._process_cpu = 0

    def start(self, steps: int) -> None:
        """Starts an epoch of about that many steps: forgets what was, begins the first step."""
        room = 1 + steps * _MARKS_A_STEP
        self._ns, self._names = array("q", bytes(8 * room)), [""] * room
        self._at = self._steps = self._fetch_cpu = self._fetch_wall = self._process_cpu = 0
        self._running = True
        self._also = None
        if self.device is not None:
            self.device.start()
            self._also = self.device.mark
        self._ns[0], self._at = self._clock(), 1

    def __call__(self, part: str) -> None:
        at = self._at
        try:
            self._ns[at] = self._clock()
        except IndexError:
            if not self._grown():
                return
            self._ns[at] = self._clock()
        self._names[at] = part
        self._at = at + 1
        if self._also is not None:
            self._also(part)

    def end_step(self) -> None:
        """Ends a step and begins the next."""
        self(REST)
        if self.device is not None:
            self.device.end_step()
        self._steps += 1
        # Never in the first step, whose fetch waits for the first batch.
        if self._steps % _SAMPLED == 1:
            self._sample()

    def stop(self) -> None:
        """Ends the epoch: what is marked from here on is not kept."""
        if self._steps > 1:
            self._process_cpu = self._clocks.process() - self._process_began
        self._running, self._also = False, None
        # The buffer ends with what it holds, so that the next mark finds no room.
        del self._ns[self._at :], self._names[self._at :]

    def times(self) -> EpochTimes:
        """What was marked since `start`, after `stop`; takes a millisecond for some thousand marks."""
        names = self._names[1:]
        parts = [p for p in dict.fromkeys(names) if p != WORKERS]
        place = {part: i for i, part in enumerate(parts)}
        place[WORKERS] = place.get("data", 0)
        spent = np.diff(np.array(self._ns, dtype=np.int64))
        where = np.array([place[n] for n in names], dtype=np.intp)
        ends = np.array([n == REST for n in names], dtype=np.intp)
        table = np.zeros((self._steps + 1, len(parts)), dtype=np.int64)
        np.add.at(table, (np.cumsum(ends) - ends, where), spent)
        started = [int(ns) for n, ns in zip(names, spent, strict=True) if n == WORKERS]
        return EpochTimes(
            parts=tuple(parts),
            ns=table[: self._steps],  # without a step that did not come to its end
            worker_start_ns=sum(started) if started else None,
            fetch_cpu_ns=self._fetch_cpu,
            fetch_wall_ns=self._fetch_wall,
            process_cpu_ns=self._process_cpu,
            device_ms=self.device.steps_ms() if self.device is not None else {},
        )

    def _sample(self) -> None:
        if self._steps == 1:
            self._process_began = self._clocks.process()
        self._also = self._fetched
        self._fetch_began = self._clocks.thread()

    def _fetched(self, part: str) -> None:
        """Takes the first part of a step for its fetch, if it is one."""
        used = self._clocks.thread() - self._fetch_began
        if part == "data":
            self._fetch_cpu += used
            self._fetch_wall += self._ns[self._at - 1] - self._ns[self._at - 2]
        self._also = None
        if self.device is not None:
            self._also = self.device.mark
            self.device.mark(part)

    def _grown(self) -> bool:
        """Makes room for as many marks again; not where no epoch runs."""
        if self._running:
            self._names.extend([""] * len(self._names))
            self._ns.extend(self._ns)
        return self._running
