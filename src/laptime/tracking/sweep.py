"""Ends runs of dead processes: MLflow leaves them at RUNNING for ever."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from laptime.tracking.base import RunStatus
from laptime.tracking.owner import BOOT, HOST, OpenRun, this_boot, this_host


class Sweepable(Protocol):
    """A store whose open runs can be listed and ended."""

    def open_runs(self, tag: str, value: str) -> Sequence[OpenRun]:
        """Runs at RUNNING with an owner's tag."""
        ...

    def end(self, run_id: str, status: RunStatus, ended_at: float) -> None:
        """Ends a run."""
        ...


def sweep(store: Sweepable) -> list[OpenRun]:
    """Ends, as KILLED, the open runs of this host and its containers whose process is gone; never another host's.

    Returns:
        The runs that it ended.
    """
    asked = ((HOST, this_host()), (BOOT, this_boot()))
    found = {run.run_id: run for tag, value in asked if value for run in store.open_runs(tag, value)}
    dead = [run for run in found.values() if run.owner.is_dead()]
    for run in dead:
        store.end(run.run_id, "KILLED", time.time())
    return dead
