"""Which process owns a run: by host, process id and start time, so that no living run is ever taken for a dead one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

# The inode of the kernel's first process-id namespace (include/linux/proc_ns.h); containers have others.
_FIRST_NAMESPACE = "4026531836"
# The tags by which a store is asked for runs of this host and its containers.
HOST, BOOT = "laptime.host", "laptime.boot"


@dataclass(frozen=True)
class Owner:
    """A process on a host.

    Attributes:
        host: host name, with the process-id namespace in a container: equal ids there mean other processes.
        pid: process id.
        started: when the process started, in the kernel's ticks since boot: untouched by a clock that is set.
        boot: the kernel's own id since it booted, which containers share with their host; empty where not known.
    """

    host: str
    pid: int
    started: str
    boot: str = ""

    def tags(self) -> dict[str, str]:
        """The owner as tags of a run."""
        own = {HOST: self.host, "laptime.pid": str(self.pid), "laptime.started": self.started, BOOT: self.boot}
        return {name: value for name, value in own.items() if value}

    def is_dead(self) -> bool:
        """Whether the process is known to be gone; False for every process of another host.

        One of a container on this very kernel is gone where nothing lives in its process-id namespace any more, which
        only the host can tell, and only where it may look at every process.
        """
        if self.host == this_host():
            return not _hidden(self.pid) and _started(self.pid) != self.started
        namespace = self.host.rpartition(":")[2]
        if not self.boot or self.boot != this_boot() or not namespace.isdecimal():
            return False
        living = living_namespaces()
        return living is not None and namespace not in living


@dataclass(frozen=True)
class OpenRun:
    """A run that stands at RUNNING, and the process that owns it."""

    run_id: str
    key: str
    owner: Owner


def open_run(run_id: str, tags: Mapping[str, str]) -> OpenRun:
    """Reads the owner out of a run's tags."""
    pid = tags.get("laptime.pid", "")
    started, boot = tags.get("laptime.started", ""), tags.get(BOOT, "")
    owner = Owner(tags[HOST], int(pid) if pid.isdecimal() else 0, started, boot)
    return OpenRun(run_id, tags.get("laptime.key", ""), owner)


def this_process() -> Owner:
    """The calling process."""
    return Owner(this_host(), os.getpid(), _started(os.getpid()) or "", this_boot())


def this_boot() -> str:
    """The kernel's id since it booted; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def living_namespaces(proc: Path = Path("/proc")) -> set[str] | None:
    """The process-id namespaces in which something lives; None where this process can't see all of them.

    Only the first namespace sees all others, and only where /proc hides nothing: the first process is looked at too.
    """
    found = set[str]()
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                found.add((entry / "ns" / "pid").readlink().name.strip("pid:[]"))
            except FileNotFoundError:  # it has just ended
                continue
            except OSError:
                return None
    whole = (proc / "1").exists() and (proc / "self" / "ns" / "pid").readlink().name == f"pid:[{_FIRST_NAMESPACE}]"
    return found if whole else None


def this_host() -> str:
    """This host's name, unique enough for process ids to be compared."""
    try:
        namespace = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    except OSError:
        namespace = _FIRST_NAMESPACE
    name = socket.gethostname()
    return name if namespace == _FIRST_NAMESPACE else f"{name}:{namespace}"


def _started(pid: int) -> str | None:
    """Start time of a process, None where none lives under this id; a zombie is dead."""
    try:
        # The command's name stands in brackets and may hold spaces; the fields after it are counted from the third.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        return _started_elsewhere(pid)
    except (OSError, IndexError):
        return None


def _started_elsewhere(pid: int) -> str | None:
    """The same on systems without /proc, to the second."""
    try:
        return None if Path("/proc/self/stat").exists() else str(round(psutil.Process(pid).create_time()))
    except psutil.NoSuchProcess:
        return None


def _hidden(pid: int) -> bool:
    """Whether another user's process lives under this id: /proc may be mounted so that it can't be seen."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not Path(f"/proc/{pid}/stat").exists()
    except (OSError, OverflowError):
        return False
    return False
