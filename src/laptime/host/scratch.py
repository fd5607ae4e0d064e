"""Temporary folders that do not outlive their process, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# How all their names begin.
PREFIX = "laptime-scratch-"
# Bytes of a folder in which a socket still has a name: its path may have about a hundred.
_LONGEST = 85


@contextmanager
def scratch(what: str) -> Iterator[Path]:
    """A folder below the temporary one, gone at the end; what killed processes left there goes first.

    Its owner holds a lock on it, which the kernel frees with the process.

    Args:
        what: a word for its name.
    """
    sweep_scratch()
    with contextlib.ExitStack() as held:
        folder = _locked(what, held)
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextmanager
def sockets_in_scratch() -> Iterator[None]:
    """Has the sockets over which loader workers hand over tensors in one such folder, from here on.

    Python makes a folder for each worker, which stays for ever where the worker is killed. Without room for ours, or
    with a path that is too long, that is left as it is.
    """
    config: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    with contextlib.ExitStack() as held:
        if config.get("tempdir") is None:
            with contextlib.suppress(OSError):
                folder = held.enter_context(scratch("sockets"))
                if len(os.fsencode(folder)) <= _LONGEST:
                    config["tempdir"] = str(folder)
                    held.callback(config.pop, "tempdir", None)
        yield


def sweep_scratch() -> None:
    """Removes the folders of processes that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:  # in use, or another user's
            _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB, held)
            shutil.rmtree(folder, ignore_errors=True)


def _locked(what: str, held: contextlib.ExitStack) -> Path:
    """Makes a folder and locks it; anew where a sweep came in between the two."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{what}-"))
        with contextlib.suppress(FileNotFoundError):
            _lock(folder, fcntl.LOCK_EX, held)
            if folder.is_dir():
                return folder


def _lock(folder: Path, how: int, held: contextlib.ExitStack) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    held.callback(os.close, descriptor)
    fcntl.flock(descriptor, how)
