"""What the embedded store of MLflow holds, read from its tables: a client of MLflow's takes two seconds to import."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_RUNS = "SELECT {} FROM runs JOIN tags USING (run_uuid) WHERE tags.key = ? AND runs.lifecycle_stage = 'active'"


def statuses(home: Path) -> dict[str, list[str]]:
    """Kinds and statuses of the runs."""
    found: dict[str, list[str]] = {}
    for kind, status in _asked(home, _RUNS.format("tags.value, runs.status"), "laptime.kind"):
        found.setdefault(kind, []).append(status)
    return found


def run_of(home: Path, tag: str, value: str) -> str:
    """The id of the youngest run with a tag."""
    youngest = f"{_RUNS.format('run_uuid')} AND tags.value = ? ORDER BY runs.start_time DESC"
    return str(_asked(home, youngest, tag, value)[0][0])


def _asked(home: Path, query: str, *values: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(f"file:{home / 'mlflow.db'}?mode=ro", uri=True)) as store:
        return store.execute(query, values).fetchall()
