"""A variant that ran alone, told as events: a run without a parent, named as a ladder's variant is.

Its ladder is one that nobody planned: it holds this variant alone, gives its id to the run, and has none itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from laptime.records import SYSTEM, LadderRecord, RunRecord, read_samples
from laptime.tracking.base import RunStatus, Tracker
from laptime.tracking.publish import FILES, LATE, log_files, log_model, run_status, variant_start
from laptime.tracking.rows import curves, figure_rows, summaries, system_rows
from laptime.tracking.tensorboard import write_events


def lone_started(tracker: Tracker, alone: LadderRecord, planned: RunRecord, folder: Path) -> None:
    """Starts the run before anything trains; its tag `laptime.folder` says where it stands on its host.

    Args:
        tracker: where to.
        alone: a ladder of this variant.
        planned: a record with its spec and nothing else.
        folder: of the run.
    """
    start = variant_start(alone, alone.rungs[0], [planned], (alone.id, None))
    tracker.start_run(replace(start, tags={**start.tags, "laptime.folder": str(folder)}))


def lone_recorded(
    tracker: Tracker, alone: LadderRecord, record: RunRecord, folder: Path, figures: Mapping[str, float]
) -> None:
    """Tells all of a run that has left a record, and ends it.

    Args:
        tracker: where to.
        alone: a ladder of this variant.
        record: what came of it.
        folder: of the run.
        figures: metrics that only a comparison reckons; they stand for the summary's of the same name.
    """
    tracker.start_run(variant_start(alone, alone.rungs[0], [record], (alone.id, None)))
    rows = [row for row in summaries([record]) if row.name not in figures]
    system = system_rows(alone, read_samples(folder / SYSTEM))
    tracker.log_metrics(alone.id, [*curves(alone, [record]), *system, *rows, *figure_rows(figures, record.ended_at)])
    write_events(record, folder / "tensorboard")
    log_files(tracker, alone.id, record, folder, (*FILES, *LATE))
    log_model(tracker, alone.id, alone, [folder])
    tracker.end_run(alone.id, run_status(alone, [record]), record.ended_at or time.time())


def lone_broken_off(tracker: Tracker, alone: LadderRecord, folder: Path, ending: tuple[RunStatus, str]) -> None:
    """Ends a run that has left no record, with its status and the reason."""
    status, reason = ending
    tracker.set_tags(alone.id, {"laptime.error": reason})
    log_files(tracker, alone.id, RunRecord(status="failed"), folder, ("spec.json", "log.txt"))
    tracker.end_run(alone.id, status, time.time())
