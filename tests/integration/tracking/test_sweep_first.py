"""Any command ends the runs of dead processes first, and asks no store where there can be none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from mlflow_helpers import everything, quiet, write_ladder
from mlflow_server import MlflowServer
from proxy import a_proxy
from tests.warned import BY_MLFLOW

from laptime.cli import sweeping
from laptime.cli.sweeping import sweep_first
from laptime.places import Places
from laptime.tracking import courier
from laptime.tracking.journal import held, is_settled, read_state
from laptime.tracking.owner import this_process
from laptime.tracking.sync import left_open, sync

pytestmark = BY_MLFLOW


@pytest.fixture
def places(tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_uri)
    monkeypatch.setattr(sweeping, "_ENOUGH_S", 600.0)  # a busy machine sends little in the usual two seconds
    return Places(tmp_path)


def killed(places: Places, name: str) -> Path:
    """The journal of a ladder whose process is gone, of which some has arrived, among it that it runs."""
    write_ladder(places, name, end=False)
    journal = places.journal / f"{name}.jsonl"
    text = journal.read_text().replace(f'"laptime.started":"{this_process().started}"', '"laptime.started":"1"')
    journal.write_text(text)
    sync_until_started(places, journal)
    return journal


def sync_until_started(places: Places, journal: Path) -> None:
    from laptime.tracking import Journal
    from laptime.tracking.mlflow import MlflowTracker

    with Journal(journal) as own:
        own.send(MlflowTracker(places.mlflow_uri, places.artifacts), quiet, enough=lambda: True)


def test_a_killed_ladder_is_ended_by_whatever_runs_next(places: Places, sqlite_uri: str) -> None:
    journal = killed(places, "swept")
    ladder = write_ladder(Places(places.home / "aside"), "swept")
    assert everything(sqlite_uri, ladder)["swept"][0] == "RUNNING"
    with held(journal):
        assert not left_open(places), "whoever holds it lives"
    sweep_first("optimize")
    assert not is_settled(journal)
    sweep_first("list")
    assert everything(sqlite_uri, ladder)["swept"][0] == "KILLED"
    assert is_settled(journal)
    assert not (places.journal / ".asked").exists()


def test_what_takes_long_waits_and_the_dead_are_ended_in_any_case(
    places: Places, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = killed(places, "long")
    ladder = write_ladder(Places(places.home / "aside"), "long")
    before = read_state(journal).applied
    monkeypatch.setattr(sweeping, "_ENOUGH_S", -1.0)
    sweep_first("list")
    assert read_state(journal).applied == before + 1
    assert everything(sqlite_uri, ladder)["long"][0] == "KILLED"
    assert not is_settled(journal)
    monkeypatch.undo()
    sync(places, sqlite_uri, quiet)
    assert is_settled(journal)


def test_a_store_that_is_away_is_asked_once_a_minute(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(places, "away")
    away = "http://127.0.0.1:9"
    uri = places.mlflow_uri
    monkeypatch.setenv("MLFLOW_TRACKING_URI", away)
    sweep_first("list")
    assert (places.journal / ".asked").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    sweep_first("list")
    assert left_open(places), "not asked again so soon"
    (places.journal / ".asked").unlink()
    sweep_first("list")
    assert not left_open(places)


def test_what_has_never_arrived_leaves_no_run_open(places: Places, sqlite_uri: str) -> None:
    write_ladder(places, "unsent", end=False)
    assert not left_open(places)
    sync(places, sqlite_uri, quiet)
    assert not left_open(places)


def test_a_server_that_holds_files_holds_no_command(
    places: Places, running_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_proxy(running_server.uri) as (line, uri):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        journal = killed(places, "holding")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "250")
        # Requests that are answered come before the file, and a busy server's answers may take some seconds.
        monkeypatch.setitem(courier._SHORT, "MLFLOW_HTTP_REQUEST_TIMEOUT", "8")
        line.holding = True
        begin = time.monotonic()
        sweep_first("list")
        assert line.puts == 1
        assert time.monotonic() - begin < 120
    assert not is_settled(journal)
