"""How much of the host's memory a process may use, and how much of it is left."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Where Linux tells what the process's control group may use.
_GROUP = Path("/sys/fs/cgroup")
_MACHINE = Path("/proc/meminfo")


def allowed_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or what its control group leaves of it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = (_GROUP / "memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return whole
    return min(whole, int(limit)) if limit.isdigit() else whole


def free_memory() -> int:
    """Bytes of memory that a process can still take; what files left in the page cache counts, as it can be dropped."""
    available = _available()
    try:
        limit, used, kept = (
            (_GROUP / f"memory.{name}").read_text(encoding="ascii").strip() for name in ("max", "current", "stat")
        )
    except OSError:
        return available
    if not limit.isdigit():
        return available
    shares = dict(line.split() for line in kept.splitlines())
    cached = int(shares["active_file"]) + int(shares["inactive_file"])
    return max(0, min(available, int(limit) - int(used) + cached))


def _available() -> int:
    """Bytes that the machine has left."""
    try:
        import psutil
    except ImportError:  # a Linux machine with torch alone, as scripts/bench gpu may have
        told = dict(line.split(":") for line in _MACHINE.read_text(encoding="ascii").splitlines())
        return int(told["MemAvailable"].split()[0]) * 1024
    return psutil.virtual_memory().available


@contextmanager
def uncollected() -> Iterator[None]:
    """Holds Python's garbage collector off: cycles that die within stay until it runs again."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
