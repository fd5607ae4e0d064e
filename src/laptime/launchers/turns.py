"""Hands out turns to trainings that run at the same time: one epoch of one, then of the other, never two at once.

Machines that others share are faster in one minute than in the next. Two processes one after the other see two such
minutes, epochs by turns see the same ones. `laptime.host.turns` is the side that asks.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from laptime.errors import RunError
from laptime.host.turns import PREPARATION

# First, second, second, first: neither is always the one that comes after the other.
_ORDER = (0, 1, 1, 0)
# Work of a training while another one has the turn, as a share of a core: more would be charged to the other.
_IDLE_SHARE, _IDLE_S = 0.05, 0.1


class TurnsError(RunError):
    """Two trainings can't take turns: one works while it waits, does not ask, or can't live beside the other."""


def idle_cpu_s() -> float:
    """Stands for a training whose CPU time nobody counts."""
    return 0.0


@dataclass
class Seat:
    """One training's place.

    Attributes:
        door: where it connects.
        cpu_s: CPU seconds that it has taken so far.
        talks: its connections; more than one are ranks of one training, which can't be told from each other.
        state: `away` until it asks for the first time, `busy` from a turn on until it asks again or its process ends.
        asked: whether it ever asked for an epoch.
        prepares: whether it asked to prepare, and so can do its imports beside another one.
        waited_s: how long it has waited for turns.
        beside_s, worked_s: how long another one trained while it waited, and the CPU time that it took then.
    """

    door: socket.socket
    cpu_s: Callable[[], float] = idle_cpu_s
    clock: Callable[[], float] = time.monotonic
    talks: list[socket.socket] = field(default_factory=list)
    state: Literal["away", "waiting", "busy", "gone"] = "away"
    asked: bool = False
    prepares: bool = False
    waited_s: float = 0.0
    beside_s: float = 0.0
    worked_s: float = 0.0
    _since: float = 0.0
    _beside: tuple[float, float] | None = None
    _several: bool = False
    _unprepared: bool = False

    @property
    def takes_turns(self) -> bool:
        """Whether it asked, in a way that can be answered."""
        return self.asked and not self._several

    @property
    def works_aside(self) -> bool:
        """Whether it worked while another one had the turn."""
        return self.worked_s > max(_IDLE_S, _IDLE_SHARE * self.beside_s)

    def waiting_s(self) -> float:
        """How long it has waited in all, the wait that is not over included."""
        return self.waited_s + (self.clock() - self._since if self.state == "waiting" else 0.0)

    def sockets(self) -> list[socket.socket]:
        """Where it may say something."""
        return [] if self.state == "gone" else [self.door, *self.talks]

    def hear(self, ready: Sequence[socket.socket]) -> None:
        """Takes in what it says. Who hangs up is at something else, and keeps the turn until its process ends."""
        if self.state == "gone":
            return
        for talk in [t for t in self.talks if t in ready]:
            said = b""
            with contextlib.suppress(OSError):
                said = talk.recv(1)
            if said:
                self._wait(to_prepare=said == PREPARATION)
            else:
                talk.close()
                self.talks.remove(talk)
                self._end_wait("busy")
        if self.door in ready:
            talk = self.door.accept()[0]
            talk.setblocking(False)
            self.talks.append(talk)
            self._several = self._several or len(self.talks) > 1
        if self._several and self.state == "waiting":
            self.give()

    @property
    def unprepared(self) -> bool:
        """Whether the turn that it waits for is the one to prepare in."""
        return self.state == "waiting" and self._unprepared

    def give(self) -> None:
        """Lets it prepare, or train an epoch."""
        self._end_wait("busy")
        for talk in self.talks:
            with contextlib.suppress(OSError):  # it has just died, which the next look at it shows
                talk.sendall(b"!")

    def stand_aside(self) -> None:
        """Another one begins to train an epoch."""
        if self.state == "waiting":
            self._beside = self.clock(), self.cpu_s()

    def move_up(self) -> None:
        """That epoch is over."""
        if self._beside is not None and self.state == "waiting":
            since, spent = self._beside
            self.beside_s += self.clock() - since
            self.worked_s += self.cpu_s() - spent
        self._beside = None

    def leave(self) -> None:
        """Its process has ended: whoever still speaks for it is not heard."""
        self._end_wait("gone")
        for each in (self.door, *self.talks):
            each.close()
        self.talks.clear()

    def _wait(self, to_prepare: bool) -> None:
        self.state, self._since, self._unprepared = "waiting", self.clock(), to_prepare
        if to_prepare:
            self.prepares = True
        else:
            self.asked = True

    def _end_wait(self, state: Literal["busy", "gone"]) -> None:
        self.waited_s, self.state = self.waiting_s(), state


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
            seat.leave()
        for path in self.paths:
            path.unlink(missing_ok=True)

    def look(self, patience_s: float) -> None:
        """Hears what the trainings say, for so many seconds at most, and gives the next turn."""
        ready, _, _ = select.select([s for seat in self.seats for s in seat.sockets()], [], [], patience_s)
        for seat in self.seats:
            seat.hear(ready)
        self._give()

    def _give(self) -> None:
        states = [seat.state for seat in self.seats]
        if "busy" in states or "away" in states:
            return
        for seat in self.seats:
            seat.move_up()
        chosen = next((s for s in self.seats if s.unprepared), None) or self._following()
        if chosen is None:
            return
        for seat in self.seats:
            # Beside a preparation nothing is timed.
            if seat is not chosen and not chosen.unprepared:
                seat.stand_aside()
        chosen.give()

    def _following(self) -> Seat | None:
        """Whose epoch is next."""
        following = self.seats[_ORDER[self._given % len(_ORDER)] % len(self.seats)]
        self._given += 1
        return next((s for s in (following, *self.seats) if s.state == "waiting"), None)
