"""What loader workers take of the processors; asked for between epochs alone, since the answer takes a millisecond."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Mapping


def cpu_s_by_worker() -> dict[int, float]:
    """CPU seconds that each worker process of this one has used since it began, by its id.

    Returns:
        Nothing on a machine with torch alone, where nobody can be asked.
    """
    try:
        import psutil
    except ImportError:
        return {}
    found: dict[int, float] = {}
    for pid in filter(None, (child.pid for child in multiprocessing.active_children())):
        with contextlib.suppress(psutil.NoSuchProcess):
            # With its own children that have ended, such as decoders.
            found[pid] = sum(psutil.Process(pid).cpu_times()[:4])
    return found


def spent_s(before: Mapping[int, float], after: Mapping[int, float]) -> float | None:
    """CPU seconds between two looks; None without workers, and where not all of them lived from one to the other."""
    if not before or before.keys() != after.keys():
        return None
    return sum(after.values()) - sum(before.values())
