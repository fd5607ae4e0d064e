"""Room on the disk, and folders that either become whole or leave nothing behind."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laptime.errors import DataError

# EFBIG and EDQUOT are a full disk too, for this user or this process.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PARTIAL = ".part-"
_STALE_S = 3600.0
# A disk with less than a large file needs: bytes.
_LITTLE = 2**30


def check_room(folder: Path, needed: int) -> None:
    """Refuses early what can't fit; `needed` in bytes.

    Raises:
        DataError: the disk of `folder` has less than that free.
    """
    if shutil.disk_usage(folder).free < needed:
        raise _full(folder, needed)


@contextmanager
def room_for(folder: Path, needed: int) -> Iterator[None]:
    """Turns a full disk inside the block into one sentence with the bytes needed."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise _full(folder, needed) from error
        raise


def no_room(error: BaseException, folder: Path) -> str | None:
    """One sentence for a file below `folder` that found no room, None where an error says something else."""
    in_words_of_torch = "inline_container" in str(error)  # its writer drops the system's reason
    full = isinstance(error, OSError) and error.errno in FULL
    if not full and not (in_words_of_torch and shutil.disk_usage(folder).free < _LITTLE):
        return None
    return f"the disk of {folder} is full, so the run was stopped: make room, or give an --out on another disk."


def _full(folder: Path, needed: int) -> DataError:
    free = shutil.disk_usage(folder).free
    return DataError(
        f"no room in {folder}: this data needs {needed} bytes ({needed / 2**20:.0f} MiB) there and {free} "
        "are free or allowed: free some space, or set LAPTIME_HOME to a folder on another disk."
    )


@contextmanager
def partial_folder(root: Path) -> Iterator[Path]:
    """A new folder beside the stores, so that it can be renamed; gone at the end unless it was.

    Raises:
        DataError: `root` can't be made or written to.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = root / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir()
    except OSError as error:
        if error.errno in FULL:
            raise _full(root.parent, 4096) from error
        raise DataError(
            f"the data folder {root} can't be written to ({error.strerror}): set LAPTIME_HOME to one that can."
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(root: Path) -> None:
    """Removes partial folders that a killed process left.

    Age counts beside the process id, since another machine or container may share the folder and number its
    processes differently.
    """
    for folder in root.glob(f"{PARTIAL}*"):
        try:
            old = time.time() - folder.stat().st_mtime > _STALE_S
            pid = int(folder.name.removeprefix(PARTIAL).split("-")[0])
        except (OSError, ValueError):
            continue
        if old and not _alive(pid):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:  # psutil is not on a machine that has only torch
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
