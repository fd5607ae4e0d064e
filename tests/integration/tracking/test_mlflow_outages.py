"""A server that is away, cut off, held or failing while a journal is replayed: all of it arrives later, once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow_helpers import client_of, everything, quiet, write_ladder
from mlflow_server import MlflowServer
from proxy import Proxy, a_proxy
from tests.warned import BY_MLFLOW

from laptime.errors import RefusedError, TrackingError
from laptime.places import Places
from laptime.tracking import Journal, patience
from laptime.tracking.base import MetricRow, RunStart
from laptime.tracking.journal import read_state
from laptime.tracking.mlflow import MlflowTracker, log_pytorch_model
from laptime.tracking.sync import sync, target_of, waiting

pytestmark = BY_MLFLOW


def away(line: Proxy) -> None:
    line.away = True


def failing(line: Proxy) -> None:
    line.failing = True


def cut(line: Proxy) -> None:
    line.cut_down = 20_000


def held(line: Proxy) -> None:
    line.hold_down = 12_000


def swallowing(line: Proxy) -> None:
    """Files alone: each is answered with a page and 200, so that MLflow takes it for sent."""
    line.swallowing = True


def deleted(client: Any, run_id: str) -> None:
    client.delete_run(run_id)


def purged(client: Any, run_id: str) -> None:
    """As mlflow gc does."""
    client.delete_run(run_id)
    client._tracking_client.store._hard_delete_run(run_id)


def key_edited(client: Any, run_id: str) -> None:
    client.set_tag(run_id, "laptime.key", "mine")


def renamed(client: Any, run_id: str) -> None:
    client.rename_experiment(client.get_run(run_id).info.experiment_id, f"once-{run_id}")


@pytest.mark.parametrize("change", [deleted, purged, key_edited, renamed])
def test_what_people_do_to_a_run_in_the_ui_makes_no_second_one_and_stops_no_other(
    tmp_path: Path, sqlite_uri: str, change: Callable[[Any, str], None]
) -> None:
    places, said = Places(tmp_path / "home"), list[str]()
    ladder = write_ladder(places, f"changed-{change.__name__}", target_of(sqlite_uri, places), end=False)
    sync(places, sqlite_uri, said.append)
    client = client_of(sqlite_uri)
    journal = places.journal / f"{ladder.id}.jsonl"
    ids, key = read_state(journal).runs, f"{ladder.id}/cpu-a"
    count = len(client.search_runs(_all(client), max_results=5000))
    change(client, ids[key])
    gone = change in (deleted, purged)
    with Journal(journal, target_of(sqlite_uri, places)) as open_journal:
        for late in (key, f"{ladder.id}/cpu-baseline"):
            open_journal.set_tags(late, {"late": "yes"})
            open_journal.start_run(RunStart(late, "again", "cifar", 1.0, ladder.id))
        open_journal.start_run(RunStart(f"{ladder.id}/cpu-b", "another", "cifar", 1.0, ladder.id))
    sync(places, sqlite_uri, said.append)
    left_out = f"the run {key} was deleted in the store, so what came of it later is left out."
    assert [text for text in said if "deleted" in text] == [left_out] * gone
    for name in ["cpu-baseline", *["cpu-a"] * (not gone)]:
        assert client.get_run(ids[f"{ladder.id}/{name}"]).data.tags["late"] == "yes"
    assert len(client.search_runs(_all(client), max_results=5000)) == count + 1 - gone
    another = client.get_run(read_state(journal).runs[f"{ladder.id}/cpu-b"])
    assert another.info.experiment_id == client.get_run(ids[ladder.id]).info.experiment_id


def test_a_deleted_experiment_holds_its_ladder_up_until_it_is_restored(tmp_path: Path, sqlite_uri: str) -> None:
    tracker = MlflowTracker(sqlite_uri, tmp_path)
    start = RunStart("kept/a", "kept", "kept", 1.0)
    tracker.start_run(start)
    client = client_of(sqlite_uri)
    experiment = client.get_run(tracker.run_ids["kept/a"]).info.experiment_id
    client.delete_experiment(experiment)
    for write in (
        lambda: tracker.start_run(start),
        lambda: tracker.log_metrics(start.key, [MetricRow("epoch_s", 1.0, 0, 1.0)]),
        lambda: tracker.set_tags(start.key, {"late": "yes"}),
        lambda: tracker.end_run(start.key, "FINISHED", 2.0),
    ):  # a RefusedError would be passed over, and the rest of the run with it
        with pytest.raises(TrackingError, match=rf"restore --experiment-id {experiment}\.$") as caught:
            write()
        assert not isinstance(caught.value, RefusedError)
    client.restore_experiment(experiment)
    tracker.start_run(start)


def _all(client: Any) -> list[str]:
    return [e.experiment_id for e in client.search_experiments()]


@pytest.mark.parametrize("outage", [away, failing, cut, held, swallowing])
def test_what_an_outage_stops_arrives_later_and_once(
    tmp_path: Path,
    running_server: MlflowServer,
    sqlite_uri: str,
    monkeypatch: pytest.MonkeyPatch,
    outage: Callable[[Proxy], None],
) -> None:
    # A held line alone is a matter of time; of the others a busy machine's server may take longer than a second.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1" if outage is held else "60")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    places = Places(tmp_path / "home")
    with a_proxy(running_server.uri) as (line, uri):
        ladder = write_ladder(places, f"outage-{outage.__name__}", target_of(uri, places))
        outage(line)
        said = "what stands before it answers PUT itself" if outage is swallowing else "when the store is back"
        with pytest.raises(TrackingError, match=said):
            sync(places, uri, quiet)
        assert len(waiting(places)) == 1
        line.reset()
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        sync(places, uri, quiet)
    assert waiting(places) == []
    found = everything(running_server.uri, ladder)
    unbroken = Places(tmp_path / "unbroken")
    shutil.copytree(places.journal, unbroken.journal, ignore=lambda *_: [f"{ladder.id}.state.json"])
    sync(unbroken, sqlite_uri, quiet, redirect=True)
    assert found == everything(sqlite_uri, ladder)


def test_a_file_may_take_a_server_longer_than_other_requests(
    tmp_path: Path, running_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    file = tmp_path / "table.txt"
    file.write_text("rows")
    with a_proxy(running_server.uri) as (line, uri):
        tracker = MlflowTracker(uri, tmp_path)
        tracker.start_run(RunStart("slow/a", "slow", "slow", 1.0))
        monkeypatch.setattr(patience, "_TIMEOUT_S", "1")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        line.block_s = 0.9  # on the way there and back
        with pytest.raises(TrackingError, match="tracking store"):
            tracker.set_tags("slow/a", {"tag": "value"})
        tracker.log_artifact("slow/a", file)
        line.reset()
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        tracker.set_tags("slow/a", {"tag": "value"})
    client = client_of(running_server.uri)
    assert [f.path for f in client.list_artifacts(tracker.run_ids["slow/a"])] == ["table.txt"]


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's settings as laptime makes them, with few seconds for a file and none between two tries.

    In them a busy server has to tell where a file belongs, too.
    """
    for name, value in patience._SHORT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(patience, "_FILE_TIMEOUT_S", "8")
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)


@pytest.mark.usefixtures("ours")
def test_a_server_that_holds_files_costs_its_patience_once_and_a_line_that_is_cut_another_try(
    tmp_path: Path, running_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, said = Places(tmp_path / "home"), list[str]()
    with a_proxy(running_server.uri) as (line, uri):
        for name in ("holding-1", "holding-2"):
            write_ladder(places, name, target_of(uri, places))
        line.holding = True
        with pytest.raises(TrackingError, match=r"timeout|timed out"):
            sync(places, uri, said.append)
        assert (line.puts, len(waiting(places)), said) == (1, 2, [])
        line.reset()
        monkeypatch.setattr(patience, "_FILE_TIMEOUT_S", "60")
        line.puts_lost = 2
        sync(places, uri, said.append)
    assert (waiting(places), said) == ([], [])


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning")
def test_a_model_that_is_too_large_is_refused_for_good_and_leaves_no_second_one(
    tmp_path: Path, running_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np
    from torch import nn

    def log() -> None:
        log_pytorch_model(nn.Linear(200, 200).eval(), tracker.run_ids["large/a"], np.zeros((2, 200), "float32"), {})

    with a_proxy(running_server.uri) as (line, uri):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "")  # which MLflow sets; so that it is taken back
        tracker = MlflowTracker(uri, tmp_path)
        tracker.start_run(RunStart("large/a", "large", "large", 1.0))
        line.most_up = 100_000
        with pytest.raises(RefusedError) as caught:
            log()
        assert "413 Client Error" in caught.value.reason
        line.reset()
        log()  # by the next sync, where somebody has raised the limit meanwhile
    experiment = client_of(running_server.uri).get_experiment_by_name("large").experiment_id
    (found,) = client_of(running_server.uri).search_logged_models([experiment])
    assert found.status.value == "READY"


@pytest.mark.parametrize(("before", "inside"), [("10", "120"), ("2", "2"), (None, None)])
def test_only_our_own_patience_is_longer_for_files(
    monkeypatch: pytest.MonkeyPatch, before: str | None, inside: str | None
) -> None:
    name = "MLFLOW_HTTP_REQUEST_TIMEOUT"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    with patience.waiting_for_files():
        assert os.environ.get(name) == inside
    assert os.environ.get(name) == before


def test_a_folder_of_the_server_s_machine_is_made_on_no_other(tmp_path: Path, running_server: MlflowServer) -> None:
    """As of `mlflow server --no-serve-artifacts`: MLflow's client would make it, where the server never looks."""
    client = client_of(running_server.uri)
    client.create_experiment("apart", artifact_location=str(tmp_path / "share" / "apart"))
    tracker = MlflowTracker(running_server.uri, tmp_path)
    tracker.start_run(RunStart("apart/a", "a", "apart", 1.0))
    file = tmp_path / "table.txt"
    file.write_text("rows")
    with pytest.raises(TrackingError, match=f"keeps files in the folder {tmp_path}/share, which this machine"):
        tracker.log_artifact("apart/a", file)
    assert not (tmp_path / "share").exists()
    (tmp_path / "share").mkdir()
    tracker.log_artifact("apart/a", file)
    assert list((tmp_path / "share").rglob("table.txt"))
