"""A store that is cut off while MLflow makes its tables can be opened afterwards."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow_helpers import quiet, write_ladder
from tests.warned import BY_MLFLOW

from laptime.errors import TrackingError
from laptime.places import Places
from laptime.tracking.base import RunStart
from laptime.tracking.mlflow import MlflowTracker
from laptime.tracking.sync import sync, waiting

pytestmark = BY_MLFLOW


def test_a_disk_that_gets_full_in_between_leaves_nothing_in_the_store_s_place(tmp_path: Path) -> None:
    places, limits = Places(tmp_path / "home"), resource.getrlimit(resource.RLIMIT_FSIZE)
    write_ladder(places, "first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))
    try:
        with pytest.raises(TrackingError, match="tracking store"):
            sync(places, places.embedded_mlflow_uri, quiet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file = places.home / "mlflow.db"
    assert not file.stat().st_size
    sync(places, places.embedded_mlflow_uri, quiet)
    assert waiting(places) == []
    assert not list(places.home.glob(".mlflow.db*"))


@pytest.mark.parametrize(("age_s", "runs", "again"), [(100, 0, True), (0, 0, False), (100, 1, False)])
def test_what_was_left_half_made_is_made_anew_unless_it_is_new_or_in_use(
    tmp_path: Path, sqlite_uri: str, age_s: float, runs: int, again: bool
) -> None:
    """As an earlier version, or a server that was killed, has left it."""
    file = tmp_path / "half.db"
    MlflowTracker(sqlite_uri, tmp_path)
    shutil.copy(sqlite_uri.removeprefix("sqlite:///"), file)
    with closing(sqlite3.connect(file, isolation_level=None)) as half:
        for (table,) in half.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table not in ("alembic_version", "experiments"):
                half.execute(f'DELETE FROM "{table}"')
        half.execute("DELETE FROM experiments WHERE experiment_id != 0")
        half.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        half.execute("DROP TABLE runs")
        half.execute("CREATE TABLE runs (run_uuid TEXT)")
        half.executemany("INSERT INTO runs VALUES (?)", [("a",)] * runs)
    before = file.stat().st_mtime - age_s
    os.utime(file, (before, before))
    if again:
        MlflowTracker(f"sqlite:///{file}", tmp_path).start_run(RunStart("a", "a", "again", 1.0))
    else:
        with pytest.raises(TrackingError, match="tracking store"):
            MlflowTracker(f"sqlite:///{file}", tmp_path)
