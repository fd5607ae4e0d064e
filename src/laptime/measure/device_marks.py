"""The borders of a step's parts on a GPU's own clock, without ever waiting for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

from laptime.measure.marks import WORKERS

# Some fifty steps: by then the device has long done the first of them, or the host runs so far ahead that a few steps
# that are not timed do no harm.
_EVENTS = 512


class Event(Protocol):
    """A point in a stream, see torch.cuda.Event."""

    def record(self) -> None:
        """Puts the point behind all work that was launched so far."""
        ...

    def query(self) -> bool:
        """Whether the device has come by."""
        ...

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds from this point to another one; both are past."""
        ...


class EventRing:
    """Events at the borders, used again and again, and read some steps later once the device has passed them.

    Where the device is a whole ring behind, steps are left out of the times rather than waited for.
    """

    def __init__(self, make: Callable[[], Event], events: int = _EVENTS) -> None:
        self._events = [make() for _ in range(events)]
        self._names = [""] * events
        self._unread: deque[tuple[int, int]] = deque()
        self._read: list[dict[str, float]] = []
        self._next, self._begin, self._steps = 0, None, 0  # type: int, int | None, int

    def start(self) -> None:
        """Begins an epoch."""
        self._unread.clear()
        self._read = []
        self._next, self._steps, self._begin = 0, 0, None
        self._begin = self._recorded("")

    def mark(self, part: str) -> None:
        """Ends a part."""
        if self._begin is not None and self._recorded(part) is None:
            self._begin = None  # full: this step is not timed

    def end_step(self) -> None:
        """Ends a step, and reads those that the device has finished by now."""
        self._steps += 1
        if self._begin is not None:
            last = self._next - 1
            if self._steps > 1:  # the first waits for the first batch
                self._unread.append((self._begin, last))
            self._begin = last
        while self._unread and self._at(self._unread[0][1]).query():
            self._read_oldest()
        if self._begin is None:
            self._begin = self._recorded("")

    def steps_ms(self) -> dict[str, list[float]]:
        """Milliseconds by part of the epoch's steps after the first; the device has been waited for."""
        while self._unread:
            self._read_oldest()
        parts = dict.fromkeys(part for step in self._read for part in step)
        return {part: [step.get(part, 0.0) for step in self._read] for part in parts}

    def _at(self, number: int) -> Event:
        return self._events[number % len(self._events)]

    def _recorded(self, part: str) -> int | None:
        """Records the next event and returns its number; None where all that follow are still to be read."""
        number = self._next
        oldest = self._unread[0][0] if self._unread else self._begin
        if oldest is not None and number - oldest >= len(self._events):
            return None
        self._at(number).record()
        self._names[number % len(self._events)] = part
        self._next = number + 1
        return number

    def _read_oldest(self) -> None:
        begin, last = self._unread.popleft()
        step: dict[str, float] = {}
        for number in range(begin + 1, last + 1):
            name = self._names[number % len(self._events)]
            part = "data" if name == WORKERS else name
            step[part] = step.get(part, 0.0) + self._at(number - 1).elapsed_time(self._at(number))
        self._read.append(step)


def device_marks(device: torch.device) -> EventRing | None:
    """A ring of events on a CUDA device; None on a CPU, whose host marks say it all."""
    if device.type != "cuda":
        return None
    return EventRing(_cuda_event)


def _cuda_event() -> Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()  # CUDA makes an event when it is first recorded, which shall not be in a counted step
    return event
