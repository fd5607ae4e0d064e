"""Training by turns: an epoch of this process, then one of another on the same machine, as the gate tells them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")

# Names the Unix socket at which a turn is asked for with one byte and given with another.
TURNS = "LAPTIME_TURNS"
# What a turn is asked for: all that stands before the first epoch but for imports, or an epoch.
PREPARATION, EPOCH = b"p", b"?"


class TurnTaker:
    """A process that takes turns with another training; without a connection it never waits."""

    def __init__(self, talk: socket.socket | None = None) -> None:
        self._talk = talk

    def prepare(self) -> None:
        """Waits for its turn to prepare: the gate lets processes import at the same time, but not probe and compile."""
        self._ask(PREPARATION)

    def epochs(self, loop: Iterator[T]) -> Iterator[T]:
        """Yields what a loop yields, each item in a turn of its own.

        The loop's end waits for a turn as well: what follows it (files, the end of the process) disturbs no epoch of
        the other training.
        """
        while True:
            self._ask(EPOCH)
            try:
                item = next(loop)
            except StopIteration:
                return
            yield item

    def _ask(self, what: bytes) -> None:
        if self._talk is None:
            return
        with contextlib.suppress(OSError):  # whoever handed out turns is gone: nobody has to be waited for any more
            self._talk.sendall(what)
            self._talk.recv(1)


NO_TURNS = TurnTaker()


@contextlib.contextmanager
def turn_taker() -> Iterator[TurnTaker]:
    """This process at the socket where turns are handed out; NO_TURNS where nobody does that."""
    path = os.environ.get(TURNS)
    # Other ranks of one training would begin, and their clocks start, while one of them waits. Launchers set this.
    alone = os.environ.get("WORLD_SIZE", "") in ("", "1")
    if not path or not alone or not hasattr(socket, "AF_UNIX"):
        yield NO_TURNS
        return
    with socket.socket(socket.AF_UNIX) as talk:
        try:
            talk.connect(path)
        except OSError:
            yield NO_TURNS
        else:
            yield TurnTaker(talk)


def by_turns(loop: Iterator[T]) -> Iterator[T]:
    """Yields what a loop yields, each item in a turn of its own, and at once where nobody hands out turns."""
    with turn_taker() as turns:
        yield from turns.epochs(loop)
