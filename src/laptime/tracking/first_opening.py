"""A SQLite store is made whole or not at all.

MLflow makes its tables by dozens of changes, one after the other, for seconds. Cut off in between, by Ctrl-C, a kill or
a full disk, it leaves a file that it can neither open nor finish, for good.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from laptime.tracking.uri import sqlite_file

# A file that was written to so lately may be one that a server is making now.
_QUIET_S = 60.0
# What a store that was never used holds: its version, the experiment Default and the workspace default.
_MADE = {"alembic_version": 1, "experiments": 1, "workspaces": 1}

T = TypeVar("T")


def opened_whole(uri: str, opened: Callable[[str], T]) -> T:
    """Opens a store; a SQLite file that is not there yet is made beside its place and copied there when it is whole.

    One that can't be opened and holds nothing was left half made, and is made anew.

    Args:
        uri: the store; nobody else makes it meanwhile (see `laptime.tracking.reach.alone`).
        opened: opens a store, and makes its tables where they are not there.
    """
    path = sqlite_file(uri)
    if path is None:
        return opened(uri)
    if path.is_file() and path.stat().st_size:
        quiet = time.time() - path.stat().st_mtime > _QUIET_S  # before this try writes to it
        try:
            return opened(uri)
        except Exception:
            if not quiet or not _holds_nothing(path):
                raise
    for old in path.parent.glob(f".{path.name}.new-*"):  # of processes that were cut off, with what SQLite had beside
        old.unlink(missing_ok=True)
    # Another name each time: MLflow keeps what it has opened under one.
    new = path.absolute().with_name(f".{path.name}.new-{secrets.token_hex(4)}")
    try:
        opened(f"sqlite:///{new}")
        with closing(sqlite3.connect(new)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)  # all of it or nothing, as any change
    finally:
        new.unlink(missing_ok=True)
    return opened(uri)


def _holds_nothing(path: Path) -> bool:
    """Whether a file holds nothing but what MLflow puts into a new one."""
    try:
        with closing(sqlite3.connect(path, timeout=0.0)) as file:
            names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            counts = {n: len(file.execute(f'SELECT 1 FROM "{n}" LIMIT 2').fetchall()) for n in names}  # noqa: S608
    except sqlite3.Error:
        return False
    return "alembic_version" in counts and all(n <= _MADE.get(_plain(name), 0) for name, n in counts.items())


def _plain(name: str) -> str:
    """The table that a change makes anew under another name."""
    return name.removeprefix("_alembic_tmp_")
