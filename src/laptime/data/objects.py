"""Files by name under a folder or an s3:// prefix: runs and their checkpoints, wherever several machines see them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from laptime.errors import DataError, UsageError, in_words, shorten


class Objects(Protocol):
    """A place for files of up to some GB, each written whole or not at all."""

    @property
    def url(self) -> str:
        """For messages."""

    def read(self, name: str) -> bytes | None:
        """Reads one; None where there is none. Raises DataError."""

    def write(self, body: bytes, name: str) -> None:
        """Writes one, over another of its name. Raises DataError."""


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
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        with _explained():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with part.open("wb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)


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
    return Folder(Path(place).expanduser().absolute())
