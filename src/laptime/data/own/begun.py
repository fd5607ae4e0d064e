"""How each loader worker of a user's own training begins: its own places in open files, and `worker_init_fn`."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, Subset, get_worker_info

from laptime.data.own.importing import told_with_line
from laptime.errors import UsageError
from laptime.own.protocol import Workload

Begin = Callable[[int], Any]
# A process's open files on Linux; where there is no such folder, workers are not forked by themselves.
_OPEN = Path("/proc/self/fd")
# Where all processes write to the end of the same file.
_STANDARD = (0, 1, 2)


class Limited(Subset[Any]):
    """What a limit keeps of a user's data set."""


def worker_start() -> str:
    """How loader workers start: forked on Linux, as before Python 3.14, whose fork server shares no memory and must be
    sent the data set; else as the user's file has set it.
    """
    default = multiprocessing.get_all_start_methods()[0]
    chosen = multiprocessing.get_start_method(allow_none=True) or default
    return "fork" if chosen == default and sys.platform == "linux" else chosen


def own_dataset(dataset: Dataset[Any]) -> Dataset[Any]:
    """The data set as the user gave it, of which a limit may keep a part."""
    return dataset.dataset if isinstance(dataset, Limited) else dataset


def worker_begin(workload: Workload, file: Path) -> Begin | None:
    """A workload's `worker_init_fn`; None without one.

    Raises:
        UsageError: it can't be called.
        RunError: the user's code failed.
    """
    with told_with_line(f"worker_init_fn of {file.name}", file):
        found: Any = getattr(workload, "worker_init_fn", None)
    if found is not None and not callable(found):
        raise UsageError(
            f"worker_init_fn of {file.name} is a {type(found).__name__}: make it a function of a worker's number, as "
            "DataLoader takes it."
        )
    begin: Begin | None = found
    return begin


def begun(begin: Begin | None, dataset: Any, worker: int) -> None:
    """Begins a worker, by what a user has it begin with, too, which finds the user's data set, within what seeds it."""
    for entry in list(_OPEN.iterdir()) if _OPEN.is_dir() else ():
        with contextlib.suppress(OSError):  # the listing's own, closed by now; what may not be read any more
            read_apart(int(entry.name))
    if begin is not None:
        object.__setattr__(get_worker_info(), "dataset", dataset)  # which torch does not let others set
        begin(worker)


def read_apart(number: int) -> None:
    """Opens a file that is open to be read once more, under its own number, at the same place in it.

    Processes that were forked share the place of each open file, so where a data set holds one (records, a ZIP), one
    worker's seek moves what another reads at that moment: other bytes, without any error.

    Raises:
        OSError: it can't be opened again, or is locked by what has opened it, and stays as it is.
    """
    import fcntl  # not on Windows, where a printed script runs, too, and no process is forked

    kind, flags = os.fstat(number).st_mode, fcntl.fcntl(number, fcntl.F_GETFL)
    if stat.S_ISSOCK(kind):
        end_connection(number)
    written = flags & os.O_ACCMODE != os.O_RDONLY
    if not stat.S_ISREG(kind) or flags & os.O_ACCMODE == os.O_WRONLY or (written and number in _STANDARD):
        return
    # Its number is a link, and a file that has had no name is opened as any other.
    own = os.open(_OPEN / str(number), flags & ~(os.O_TMPFILE | os.O_NOFOLLOW) | os.O_CLOEXEC)
    try:
        if written:
            fcntl.flock(own, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(own, fcntl.LOCK_UN)
        os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(own, number, os.get_inheritable(number))
    finally:
        os.close(own)


def end_connection(number: int) -> None:
    """Puts a connection that has ended in the place of one to a server, of which this process has a fork's copy.

    What one worker asks there another may be answered, without any error: a pool of connections makes a new one, and
    all else fails with the line where it stands.

    Raises:
        OSError: it is connected to nothing.
    """
    import socket

    with socket.socket(fileno=os.dup(number)) as shared:
        if shared.family not in (socket.AF_INET, socket.AF_INET6):
            return
        shared.getpeername()
    ended, other = socket.socketpair()
    with ended, other:
        ended.setblocking(os.get_blocking(number))
        os.dup2(ended.fileno(), number, os.get_inheritable(number))
