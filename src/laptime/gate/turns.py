"""Hands out turns to trainings that run at the same time: one epoch of one, then of the other, never two at once.

Machines that others share are faster in one minute than in the next. Two processes one after the other see two such
minutes, epochs by turns see the same ones. `laptime.turns` is the side that asks.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# First, second, second, first: what changes steadily from epoch to epoch hits both alike.
_ORDER = (0, 1, 1, 0)


@dataclass
class Seat:
    """One training's place.

    Attributes:
        door: where it connects.
        talks: its connections; more than one are ranks of one training, which can't be told from each other.
        state: `away` until it asks for the first time, `gone` once it has ended or hung up.
        asked: whether it ever did.
        waited_s: how long it has waited for turns.
    """

    door: socket.socket
    talks: list[socket.socket] = field(default_factory=list)
    state: Literal["away", "waiting", "training", "gone"] = "away"
    asked: bool = False
    waited_s: float = 0.0
    _since: float = 0.0
    _several: bool = False

    @property
    def takes_turns(self) -> bool:
        """Whether it asked, in a way that can be answered."""
        return self.asked and not self._several

    def hear(self, ready: list[socket.socket]) -> None:
        """Takes in what it says."""
        if self.door in ready:
            self.talks.append(self.door.accept()[0])
            self._several = self._several or len(self.talks) > 1
        for talk in [t for t in self.talks if t in ready]:
            said = b""
            with contextlib.suppress(OSError):
                said = talk.recv(1)
            if said:
                self._asks()
            else:
                self._hangs_up(talk)
        if self._several and self.state == "waiting":
            self.give()

    def give(self) -> None:
        """Lets it train an epoch."""
        self.waited_s += time.monotonic() - self._since
        self.state = "training"
        for talk in self.talks:
            with contextlib.suppress(OSError):  # it has just died, which the next look at it shows
                talk.sendall(b"!")

    def leave(self) -> None:
        """Its process has ended."""
        self.state = "gone"

    def _asks(self) -> None:
        self.asked, self.state, self._since = True, "waiting", time.monotonic()

    def _hangs_up(self, talk: socket.socket) -> None:
        talk.close()
        self.talks.remove(talk)
        if not self.talks:
            self.state = "gone"


class Turns:
    """Seats for trainings, in the order in which they begin.

    Args:
        folder: where the sockets stand.
        count: one training, which always has its turn, or two.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [folder / f"turns-{n}" for n in range(count)]
        self.seats: list[Seat] = []
        self._given = 0

    def __enter__(self) -> Turns:
        try:
            for path in self.paths:
                path.unlink(missing_ok=True)
                self.seats.append(Seat(socket.socket(socket.AF_UNIX)))
                self.seats[-1].door.bind(str(path))
                self.seats[-1].door.listen()
        except OSError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for seat in self.seats:
            for each in (seat.door, *seat.talks):
                each.close()
        for path in self.paths:
            path.unlink(missing_ok=True)

    def look(self, patience_s: float) -> None:
        """Hears what the trainings say, for so many seconds at most, and gives the next turn."""
        ready, _, _ = select.select([s for seat in self.seats for s in (seat.door, *seat.talks)], [], [], patience_s)
        for seat in self.seats:
            seat.hear(ready)
        self._give()

    def _give(self) -> None:
        states = [seat.state for seat in self.seats]
        if "training" in states or "away" in states:
            return
        following = self.seats[_ORDER[self._given % len(_ORDER)] % len(self.seats)]
        chosen = [s for s in (following, *self.seats) if s.state == "waiting"]
        if chosen:
            self._given += 1
            chosen[0].give()
