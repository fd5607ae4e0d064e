"""Files by name under a folder or an s3:// prefix: runs and their checkpoints, wherever several machines see them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from laptime.errors import DataError, UnreachableError, UsageError, in_words, shorten
from laptime.places import expanded
from laptime.records.files import written_whole

T = TypeVar("T")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


class Objects(Protocol):
    """A place for files of up to some GB, each written whole or not at all."""

    @property
    def url(self) -> str:
        """For messages."""

    def read(self, name: str) -> bytes | None:
        """Reads one; None where there is none. Raises DataError."""

    def write(self, body: bytes, name: str) -> None:
        """Writes one, over another of its name. Raises DataError."""

    def seen(self, name: str) -> tuple[bytes | None, str | None]:
        """Reads one with a mark of what it holds, for `swap`; None for both where there is none. Raises DataError."""

    def swap(self, body: bytes, name: str, mark: str | None) -> bool:
        """Writes a small one while it is still the one with this mark (None: while there is none).

        Returns False where another writer was first, with something else. Raises DataError.
        """


class Folder:
    """A folder, on this machine or shared by several."""

    def __init__(self, path: Path) -> None:
        self._root = path

    @property
    def url(self) -> str:
        """See Objects."""
        return str(self._root)

    def read(self, name: str) -> bytes | None:
        """See Objects."""
        with _explained():
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, body: bytes, name: str) -> None:
        """See Objects; beside and renamed, and on the disk before that, so that no name ever has half a file."""
        path = self._root / name
        with _explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as part, part.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())

    def seen(self, name: str) -> tuple[bytes | None, str | None]:
        """See Objects."""
        body = self.read(name)
        return body, None if body is None else hashlib.sha256(body).hexdigest()

    def swap(self, body: bytes, name: str, mark: str | None) -> bool:
        """See Objects; of two at the very same moment the later one stays, since folders know no conditions."""
        if self.seen(name)[1] != mark:
            return False
        self.write(body, name)
        return True


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(in_words(error)) from error


def open_objects(place: str) -> Objects:
    """The place that a folder's path or an s3:// address names.

    Raises:
        UsageError: it is an address of another kind, or names no bucket.
    """
    if place.startswith("s3://"):
        from laptime.data.s3 import S3Place  # boto3 is needed only then

        return S3Place(place)
    if not place or "://" in place:
        raise UsageError(f"{shorten(place)!r} is no place for runs: give a folder or an s3:// address.")
    return Folder(expanded(place).absolute())


def patiently(
    ask: Callable[[], T],
    patience_s: float,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Asks a place again while it does not answer: after a second, then after twice as long each time.

    Args:
        ask: reads there.
        patience_s: for how long.
        say: told once that it is waited for.
        sleep: a test's.
        clock: a test's.

    Raises:
        UnreachableError: it has not answered all that time; what else `ask` raises comes through at once.
    """
    until, pause = clock() + patience_s, _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except UnreachableError as error:
            left = until - clock()
            if left <= 0:
                raise
            if pause == _FIRST_PAUSE_S:
                say(f"{error} Asking again for {patience_s:.0f} s.")
            sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
