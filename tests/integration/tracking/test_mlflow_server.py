from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow_helpers import everything, quiet, write_ladder
from mlflow_server import MlflowServer
from proxy import a_proxy
from tests.samples import write_folder
from tests.warned import BY_MLFLOW

from laptime.compare.load import load
from laptime.errors import TrackingError
from laptime.host.processes import end_tree
from laptime.launchers.base import PROGRESS, ProgressReader
from laptime.places import Places
from laptime.tracking.base import MetricRow
from laptime.tracking.journal import read_state, replay
from laptime.tracking.mlflow import MlflowTracker, fetch_runs
from laptime.tracking.sync import sync, target_of, waiting

pytestmark = BY_MLFLOW


class Outage(MlflowTracker):
    """Stops the server after some batches of metrics."""

    server: MlflowServer
    batches = 0

    def log_metrics(self, key: str, rows: Any) -> None:
        if self.batches == 0:
            self.server.stop()
        self.batches -= 1
        super().log_metrics(key, list[MetricRow](rows))


def test_a_server_that_stops_in_the_middle_gets_everything_once(tmp_path: Path, running_server: MlflowServer) -> None:
    places = Places(tmp_path / "home")
    ladder = write_ladder(places, "outage", target_of(running_server.uri, places))
    journal = places.journal / "outage.jsonl"
    tracker = Outage(running_server.uri, places.artifacts)
    tracker.server, tracker.batches = running_server, 1
    with pytest.raises(TrackingError, match="laptime sync"):
        replay(journal, tracker, quiet)
    with pytest.raises(TrackingError, match="laptime sync"):
        sync(places, running_server.uri, quiet)
    assert waiting(places) == [journal]
    running_server.start()
    assert sync(places, running_server.uri, quiet).events > 0
    assert waiting(places) == []
    found = everything(running_server.uri, ladder)
    shutil.copytree(places.journal, tmp_path / "unbroken" / "journal", ignore=lambda *_: ["outage.state.json"])
    whole = Places(tmp_path / "unbroken")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    sync(whole, store, quiet, redirect=True)
    assert found == everything(store, ladder)


def test_nobody_calls_the_server_while_a_process_trains(tmp_path: Path, running_server: MlflowServer) -> None:
    """So an outage, of whatever kind, can't make an epoch longer."""
    images, ladder = write_folder(tmp_path / "images", train=24, test=8), tmp_path / "ladder"
    called: list[int] = []
    with a_proxy(running_server.uri) as (line, uri):
        command = [sys.executable, "-m", "laptime", "optimize", "cifar", "--data", str(images), "--out", str(ladder)]
        command += ["--variants", "cpu-baseline", "--epochs", "6", "--repeats", "1", "--profile", "none"]
        with (tmp_path / "log.txt").open("wb") as log:
            home = {**os.environ, "LAPTIME_HOME": str(tmp_path / "home")}
            process = subprocess.Popen([*command, "--tracking-uri", uri], env=home, stdout=log, stderr=log)
            try:
                epochs = ProgressReader(ladder / "cpu-baseline-0" / PROGRESS)
                while process.poll() is None:
                    called += [line.calls for event in epochs.events() if event["event"] == "epoch"]
                    time.sleep(0.02)
            finally:
                end_tree(process.pid)
        assert process.wait() == 0, (tmp_path / "log.txt").read_text()
        assert len(called) == 6
        assert set(called) == {called[0]}
        assert line.calls > called[0]


def test_a_remote_experiment_leaves_its_artifacts_to_the_server(
    tmp_path: Path, running_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(tmp_path)
    ladder = write_ladder(places, "remote", target_of(running_server.uri, places))
    sync(places, running_server.uri, quiet)
    assert sorted(everything(running_server.uri, ladder)) == ["remote", "remote/cpu-a", "remote/cpu-baseline"]
    assert list((running_server.folder / "artifacts").rglob("record.json"))
    assert not places.artifacts.exists()
    asked: list[str] = []
    send = requests.Session.send
    monkeypatch.setattr(requests.Session, "send", lambda s, r, **how: asked.append(r.url) or send(s, r, **how))
    ladder_run = read_state(places.journal / "remote.jsonl").runs["remote"]
    assert len(load(fetch_runs(ladder_run, running_server.uri))[1]) == 4
    # Of each run one list, of each repeat one, and of each of nine files two: a server with logins hashes at each.
    assert len(asked) < 30, asked
