"""What else went on on the machine while a process trained; written down before anybody looks at the times.

CPU figures come from /proc and hold for the whole machine, so they are read only where this process may use all of it.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from laptime.host.gpus import Gpu, others_on, slowed_down, visible_gpus
from laptime.host.processes import allowed_cores

# Shares of all cores, and pages: well above what an idle machine shows, well below what moves an epoch by some percent.
OTHERS_SHARE = 0.10
STEAL_SHARE = 0.02
SWAP_PAGES = 2048


@dataclass(frozen=True)
class Snapshot:
    """Counters of the machine at one time; seconds since boot, pages since boot."""

    at: float
    busy_s: float
    steal_s: float
    swapped_pages: int
    ours_s: float


@dataclass
class Watch:
    """Watches the machine from its making to `flags`; `sample` is called now and then in between."""

    device: str
    begin: Snapshot | None = None
    foreign: bool = False
    hot: bool = False
    gpu: Gpu | None = None

    def __post_init__(self) -> None:
        """Takes the first counters, and asks whether somebody else is on the GPU."""
        self.begin = snapshot()
        self.gpu = next(iter(visible_gpus()), None) if self.device == "cuda" else None
        self.foreign = bool(others_on(self.device))

    def sample(self) -> None:
        """Asks the GPU whether it has slowed down."""
        if self.gpu is not None and not self.hot:
            self.hot = slowed_down(self.gpu)

    def flags(self) -> tuple[str, ...]:
        """What speaks against this measurement."""
        found = list(compared(self.begin, snapshot(), os.cpu_count() or 1))
        if self.foreign:
            found.append("another process was on the GPU")
        if self.hot:
            found.append("the GPU was slowed down by heat or power")
        return tuple(found)


def compared(begin: Snapshot | None, end: Snapshot | None, cores: int) -> tuple[str, ...]:
    """Flags from two snapshots: CPU time of others, stolen time, swapping."""
    if begin is None or end is None:
        return ()
    room = max(end.at - begin.at, 1e-9) * cores
    others = (end.busy_s - begin.busy_s - (end.ours_s - begin.ours_s)) / room
    steal = (end.steal_s - begin.steal_s) / room
    found = []
    if others > OTHERS_SHARE:
        found.append(f"other processes took {others:.0%} of all cores".replace("%", " %"))
    if steal > STEAL_SHARE:
        found.append(f"the host took {steal:.0%} of the time away".replace("%", " %"))
    if end.swapped_pages - begin.swapped_pages > SWAP_PAGES:
        found.append("the machine was swapping")
    return tuple(found)


def snapshot(proc: Path = Path("/proc")) -> Snapshot | None:
    """The counters now; None where the system has none, or where this process may not use the whole machine."""
    if allowed_cores() < (os.cpu_count() or 1):
        return None
    try:
        ticks = [int(v) for v in (proc / "stat").read_text(encoding="ascii").splitlines()[0].split()[1:]]
        pages = dict(line.split() for line in (proc / "vmstat").read_text(encoding="ascii").splitlines())
        user, nice, system, _idle, _wait, irq, softirq, steal = ticks[:8]
    except (OSError, ValueError, IndexError):
        return None
    second = os.sysconf("SC_CLK_TCK")
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return Snapshot(
        at=time.monotonic(),
        busy_s=(user + nice + system + irq + softirq) / second,
        steal_s=steal / second,
        swapped_pages=int(pages.get("pswpin", 0)) + int(pages.get("pswpout", 0)),
        ours_s=sum(u.ru_utime + u.ru_stime for u in usage),
    )
