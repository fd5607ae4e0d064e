"""What every source of data is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from laptime.catalogue.entries import WorkloadEntry
from laptime.data.choices import Size
from laptime.data.net import Budget
from laptime.data.store import Entry, Store
from laptime.errors import DataError, shorten

# What is being done, how much of it is done, and of how much (0 where that is not known).
Say = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Job:
    """One request for data.

    Attributes:
        asked: as the user wrote it, without what is chosen behind it.
        bands: those of multi-spectral images that were asked for; none for the default.
        size: height and width of an image folder's images that were asked for; None for the default.
        seed: of the split into training and test, where the data come without one.
        budget: seconds left for finding out that there is no internet.
    """

    workload: WorkloadEntry
    asked: str
    store: Store
    say: Say
    budget: Budget = field(default_factory=Budget)
    bands: tuple[int, ...] = ()
    size: Size | None = None
    seed: int = 0

    @property
    def chosen(self) -> str:
        """Bands, size and seed as part of an index key; empty for the default."""
        given = {"bands": self.bands, "size": self.size, "seed": self.seed}
        return "".join(f"|{name}={value}" for name, value in given.items() if value)

    def nothing_stored(self, asked: str) -> DataError:
        """The error where the local store holds nothing of what the user asked for."""
        name, place = self.workload.name, shorten(asked)
        return DataError(
            f"nothing is stored for {name!r} from {place!r}: fetch it first (laptime data fetch {name} --data {place})."
        )


class Source(Protocol):
    """A place that data comes from."""

    def stored(self, job: Job) -> Entry | None:
        """What the local store already holds of this source; never asks the network."""

    def fetch(self, job: Job) -> Entry:
        """Brings the data into the store, or finds that it is there and still current.

        Raises:
            UnreachableError: the source does not answer; another one may.
            DataError: it answers, and what it gives can't be used.
        """


class Meter:
    """Adds up bytes and says them; transfers call it from several threads."""

    def __init__(self, say: Say, what: str, total: int) -> None:
        self._say, self._what, self._total = say, what, total
        self._done = 0
        self._lock = threading.Lock()

    def __call__(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._say(self._what, self._done, self._total)


def quiet(what: str, done: int, total: int) -> None:
    """Says nothing."""


def unseen(count: int) -> None:
    """Shows nothing of what a second try moves again: the first did."""
