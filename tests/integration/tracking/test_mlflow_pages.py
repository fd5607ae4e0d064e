"""Stores that hold more runs than MLflow gives at a time; here a page holds two."""

from __future__ import annotations

from pathlib import Path

import mlflow_helpers
import pytest
from mlflow_helpers import fetched, quiet, write_ladder
from tests.warned import BY_MLFLOW

from laptime.places import Places
from laptime.tracking.base import MetricRow, RunStart
from laptime.tracking.mlflow import MlflowTracker, runs_of_kind
from laptime.tracking.outage import Outage
from laptime.tracking.owner import HOST
from laptime.tracking.rule_history import KIND, MACHINE, MEASURED, OWN, PREDICTED, RULE, rule_history
from laptime.tracking.sync import sync

pytestmark = BY_MLFLOW


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laptime.tracking.whereabouts.PAGE", 2)


def test_all_variants_of_a_ladder_are_read(tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*(f"cpu-{n}" for n in range(4)), "cpu-baseline")
    monkeypatch.setattr(mlflow_helpers, "VARIANTS", names)
    ladder = write_ladder(Places(tmp_path), "paged")
    sync(Places(tmp_path), sqlite_uri, quiet)
    assert fetched(sqlite_uri, ladder) == [(v, n) for v in names for n in (0, 1)]


def test_all_runs_that_an_owner_left_open_are_found(tmp_path: Path, sqlite_uri: str) -> None:
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    for n in range(5):
        tracker.start_run(RunStart(f"open-{n}", f"open-{n}", "left open", 1.0 + n, tags={HOST: "gone"}))
    tracker.end_run("open-1", "FINISHED", 9.0)
    assert [run.key for run in tracker.open_runs(HOST, "gone")] == ["open-4", "open-3", "open-2", "open-0"]


def test_the_newest_of_a_kind_are_read_up_to_a_number(tmp_path: Path, sqlite_uri: str) -> None:
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    for n in range(5):
        tracker.start_run(RunStart(f"kind-{n}", f"kind-{n}", "kinds", 1.0 + n, tags={"laptime.kind": "paged"}))
    found = [labels["laptime.key"] for labels, _ in runs_of_kind("paged", sqlite_uri, 3)]
    assert found == ["kind-4", "kind-3", "kind-2"]


def test_a_machine_s_own_advice_is_not_crowded_out_by_others(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laptime.tracking.rule_history.MOST", 6)
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    for n, machine in enumerate(["quiet"] * 5 + ["busy"] * 5):
        tags = {"laptime.kind": KIND, MACHINE: machine}
        key = f"crowded-{n}"
        tracker.start_run(RunStart(key, key, "crowded", 2e9 + n, tags=tags, params={RULE: "crowded"}))
        gain = 0.1 if machine == "quiet" else 0.4
        rows = [MetricRow(name, value, 0, 1.0) for name, value in ((PREDICTED, 0.2), (OWN, 0.2), (MEASURED, gain))]
        tracker.log_metrics(key, rows)
    found = {name: rule_history(sqlite_uri, Outage(quiet), name)["crowded"] for name in ("quiet", "busy", "another")}
    assert [(h.tried, h.here) for h in found.values()] == [(5, True), (5, True), (6, False)]
    assert [h.ratio for h in found.values()] == pytest.approx([0.5, 2.0, 2.0])
