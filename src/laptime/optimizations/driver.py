"""Who walks through an epoch: laptime's own loop, or a trainer that brings a loop of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from laptime.workloads.base import Counts

if TYPE_CHECKING:
    from laptime.optimizations.base import Parts


class Lap(Protocol):
    """What is told of an epoch while it runs: its clock above all."""

    def begin(self) -> None:
        """Before the first fetch."""
        ...

    def step(self, counts: Counts) -> None:
        """After each step."""
        ...

    def end(self) -> None:
        """After the last step."""
        ...


class Driver(Protocol):
    """A trainer that owns its loop and can't be asked for one step after another."""

    @property
    def name(self) -> str:
        """What its table is called."""
        ...

    def drive(self, p: Parts, index: int, lap: Lap, steps: int | None = None) -> None:
        """Trains one epoch, or its first steps, and tells the lap; what it does before and after is not timed."""
        ...

    def table(self, p: Parts, index: int, steps: int) -> str:
        """Trains some steps under the trainer's own profiler; returns its table."""
        ...
