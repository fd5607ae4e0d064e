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


def by_turns(loop: Iterator[T]) -> Iterator[T]:
    """Yields what a loop yields, each item in a turn of its own, and at once where nobody hands out turns.

    The loop's end waits for a turn as well: what follows it (files, the end of the process) disturbs no epoch of the
    other training.
    """
    seat = _seat()
    if seat is None:
        yield from loop
        return
    with seat:
        while True:
            _ask(seat)
            try:
                item = next(loop)
            except StopIteration:
                return
            yield item


def _seat() -> socket.socket | None:
    path = os.environ.get(TURNS)
    # Other ranks of one training would begin, and their clocks start, while one of them waits. Launchers set this.
    alone = os.environ.get("WORLD_SIZE", "") in ("", "1")
    if not path or not alone or not hasattr(socket, "AF_UNIX"):
        return None
    seat = socket.socket(socket.AF_UNIX)
    try:
        seat.connect(path)
    except OSError:
        seat.close()
        return None
    return seat


def _ask(seat: socket.socket) -> None:
    with contextlib.suppress(OSError):  # whoever handed out turns is gone: nobody has to be waited for any more
        seat.sendall(b"?")
        seat.recv(1)
