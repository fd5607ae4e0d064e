"""Ends runs of dead processes: MLflow leaves them at RUNNING for ever."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from laptime.tracking.base import RunStatus
from laptime.tracking.owner import OpenRun, this_host


class Sweepable(Protocol):
    """A store whose open runs can be listed and ended."""

    def open_runs(self, host: str) -> Sequence[OpenRun]:
        """Runs at RUNNING of a host."""
        ...

    def end(self, run_id: str, status: RunStatus, ended_at: float) -> None:
        """Ends a run."""
        ...


def sweep(store: Sweepable) -> list[OpenRun]:
    """Ends, as KILLED, the open runs of this host whose process is gone; never a run of another host.

    Returns:
        The runs that it ended.
    """
    dead = [run for run in store.open_runs(this_host()) if run.owner.is_dead()]
    for run in dead:
        store.end(run.run_id, "KILLED", time.time())
    return dead
