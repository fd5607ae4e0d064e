"""One timed run on a device at a time, machine-wide: a file lock that the kernel frees when its holders die."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from laptime.devices import lock_names
from laptime.errors import RunError, UsageError
from laptime.places import lock_folder
from laptime.spec import RunSpec

_LOOK_EVERY_S = 0.2
# Looks in a row that find a device free before who stands first in line is passed: a process that was stopped (Ctrl-Z)
# takes nothing, and would keep all others away.
_PASSED = 10
# Names a descriptor of the lock that this process was started with, by one that holds the lock for several of them.
HELD = "LAPTIME_DEVICE_LOCK"


@contextlib.contextmanager
def device_lock(device: str, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> Iterator[int]:
    """Holds the lock of a device; waits for it in line and says so once.

    Yields:
        The lock's file descriptor: a child that inherits it holds the lock too, so that a training that outlives a
        killed parent still keeps others off its device.
    """
    path = _place(device)
    inherited = _inherited(path)
    if inherited is not None:
        yield inherited
        return
    descriptor = _opened(path, device)
    try:
        with _line(path) as line:
            _acquire(descriptor, line, _in_use(device, descriptor, say), sleep)
        with contextlib.suppress(OSError):  # another user's file may be read-only; the name of the holder is a courtesy
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def require_lock(device: str) -> None:
    """Refuses what `device_lock` would refuse, before data is fetched for minutes; waits for nobody.

    Raises:
        RunError: the lock can't be opened.
    """
    path = _place(device)
    if _inherited(path) is None:
        os.close(_opened(path, device))


@contextlib.contextmanager
def run_locks(spec: RunSpec, say: Callable[[str], None]) -> Iterator[tuple[int, ...]]:
    """Holds the locks of all devices that a run uses; yields their descriptors."""
    with contextlib.ExitStack() as held:
        names = lock_names(spec.device, spec.ranks, all_gpus=spec.option("dp") is not None)
        yield tuple(held.enter_context(device_lock(name, say)) for name in names)


@contextlib.contextmanager
def folder_alone(folder: Path) -> Iterator[None]:
    """Holds a run's folder while it trains: two commands would write into each other's files.

    Where the file system knows no locks, nothing is held.

    Raises:
        UsageError: another command holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError(
            f"another command trains in the folder {folder} now: give another --out, or wait for its end."
        ) from error
    except OSError:  # of a network's file system, say
        pass
    try:
        yield
    finally:
        os.close(descriptor)


def _inherited(path: Path) -> int | None:
    """The lock where whoever started this process holds it for it; any other descriptor is none."""
    number = os.environ.get(HELD, "")
    if not number.isdecimal():
        return None
    try:
        same = os.path.samestat(os.fstat(int(number)), path.stat(follow_symlinks=False))
        if same:
            fcntl.flock(int(number), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, OverflowError):
        return None
    return int(number) if same else None


def _place(device: str) -> Path:
    return lock_folder() / f"laptime-{device}.lock"


def _opened(path: Path, device: str) -> int:
    try:
        return _open(path)
    except OSError as error:
        own = "let its owner make it readable" if path.parent.is_dir() else f"make the folder {path.parent}"
        raise RunError(
            f"the lock of device {device} at {path} can't be opened ({error.strerror}): {own}, or set LAPTIME_LOCKS "
            "to a folder that all users of this machine may write to."
        ) from error


def _open(path: Path) -> int:
    """Opens the lock for any user: an existing file is taken as it is, since a lock needs no right to write.

    It is never deleted: others may hold or wait for it. No link is followed in a folder that is open to all.
    """
    for flags in (os.O_RDWR, os.O_RDONLY):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            return os.open(path, flags | os.O_NOFOLLOW)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, 0o666)  # whatever the umask says
    return descriptor


@contextlib.contextmanager
def _line(path: Path) -> Iterator[int | None]:
    """The lock that who stands first in line for another one holds; None where it can't be opened, and nobody stands.

    Who comes back at once, as a ladder's next process does, then stands behind those who wait: it had always been there
    first.
    """
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = _open(path.with_suffix(".line"))
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _acquire(descriptor: int, line: int | None, in_use: Callable[[], None], sleep: Callable[[float], None]) -> None:
    first, free = False, 0
    while True:
        first = first or line is None or _taken(line)
        if _taken(descriptor):
            free += 1
            if first or free > _PASSED:
                return
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        else:
            free = 0
            in_use()
        sleep(_LOOK_EVERY_S)


def _taken(descriptor: int) -> bool:
    """Takes a lock if nobody holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _in_use(device: str, descriptor: int, say: Callable[[str], None]) -> Callable[[], None]:
    """Says once who holds a device."""
    told: list[str] = []

    def tell() -> None:
        if not told:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            say(f"device {device} is in use by another timed run (process {holder}); waiting for it to end.")
            told.append(holder)

    return tell
