"""`laptime run` for real, with a SQLite store: what arrives, what waits, and how it ends when it is broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow_helpers import client_of
from ports import free_port
from tests.own_files import TUPLE, write
from tests.warned import BY_MLFLOW

from laptime.places import Places
from laptime.records import read_record
from laptime.tracking.sync import waiting

pytestmark = BY_MLFLOW
_PATIENCE_S = 240


class Home:
    """A home with a small training of the user's own."""

    def __init__(self, folder: Path) -> None:
        self.places = Places(folder / "home")
        self.workload = write(folder / "train.py", TUPLE)

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        dropped = ("MLFLOW_TRACKING_URI", "LAPTIME_COMMIT")
        environment = {k: v for k, v in os.environ.items() if k not in dropped}
        return subprocess.Popen(
            [sys.executable, "-m", "laptime", *arguments],
            env={**environment, "LAPTIME_HOME": str(self.places.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def laptime(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.started(*arguments)
        try:
            out, err = process.communicate(timeout=_PATIENCE_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def run(self, *more: str, variant: str = "cpu-baseline") -> tuple[str, ...]:
        return ("run", self.workload, "--variant", variant, "--no-profile", *more)

    def runs(self) -> list[Any]:
        """All of its MLflow store, the newest first."""
        client = client_of(self.places.embedded_mlflow_uri)
        return list(client.search_runs([e.experiment_id for e in client.search_experiments()]))

    def broken_off(self, number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Starts a command and hits it once it has trained an epoch."""
        process = self.started(*arguments)
        progress = Path(arguments[arguments.index("--out") + 1]) / "progress.jsonl"
        try:
            until = time.monotonic() + _PATIENCE_S
            while not progress.is_file() or '"event": "epoch"' not in progress.read_text():
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            process.send_signal(number)
            out, err = process.communicate(timeout=_PATIENCE_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_run_alone_is_a_variant_in_mlflow_with_its_advice(home: Home) -> None:
    done = home.laptime(*home.run("--epochs", "2"))
    assert done.returncode == 0, done.stderr
    (run,) = home.runs()
    assert run.info.status == "FINISHED"
    assert "mlflow.parentRunId" not in run.data.tags
    tags = {"laptime.kind": "variant", "laptime.variant": "cpu-baseline", "laptime.status": "done"}
    assert tags.items() <= run.data.tags.items()
    assert {"laptime.spec", "laptime.machine", "laptime.data", "laptime.folder"} <= run.data.tags.keys()
    assert {"variant": "cpu-baseline", "epochs": "2", "precision": "fp32"}.items() <= run.data.params.items()
    assert {"train_loss", "epoch_s", "step_ms_median", "epoch_s_median", "warmup_s"} <= run.data.metrics.keys()
    assert {"inference_ms_b1", "inference_samples_per_s_b32"} <= run.data.metrics.keys(), "without a profile, too"
    client = client_of(home.places.embedded_mlflow_uri)
    assert [m.step for m in client.get_metric_history(run.info.run_id, "epoch_s")] == [0, 1]
    files = {f.path for f in client.list_artifacts(run.info.run_id)}
    assert files >= {"spec.json", "record.json", "machine.json", "log.txt", "model_summary.txt", "tensorboard"}
    assert files >= {"advice.json", "advice.md", "model.pt"}
    assert waiting(home.places) == []
    (folder,) = home.places.runs.iterdir()
    assert run.data.tags["laptime.folder"] == str(folder)
    assert "Advice: " in done.stdout
    assert done.stdout.rstrip().endswith(f"run {run.info.run_id}")
    for what in (run.info.run_id, str(folder)):
        compared = home.laptime("compare", what, "--json")
        assert [row["variant"] for row in json.loads(compared.stdout)["rows"]] == ["cpu-baseline"]
        advised = home.laptime("advise", what, "--json")
        assert json.loads(advised.stdout)["subject"] == "cpu-baseline", advised.stderr
    assert str(folder) in home.laptime("clean").stdout, "all of it is in MLflow"


def test_a_store_that_is_away_gets_the_run_later(home: Home) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    done = home.laptime(*home.run("--tracking-uri", uri, "--json"))
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "done"
    assert sum(uri in line for line in done.stderr.splitlines()) == 1, done.stderr
    assert "laptime sync" in done.stderr
    assert not (home.places.home / "mlflow.db").exists()
    assert str(home.places.runs) not in home.laptime("clean").stdout, "nobody else has its files"
    sent = home.laptime("sync", "--tracking-uri", home.places.embedded_mlflow_uri)
    assert sent.returncode == 0, sent.stderr
    assert [run.info.status for run in home.runs()] == ["FINISHED"]


def test_bare_leaves_nothing_but_its_folder(home: Home, tmp_path: Path) -> None:
    done = home.laptime(*home.run("--bare", "--out", str(tmp_path / "out")))
    assert done.returncode == 0, done.stderr
    record = read_record(tmp_path / "out" / "record.json")
    assert (record.check, record.inference, record.setup) == (None, (), None)
    left = {p.name for p in (tmp_path / "out").iterdir()}
    assert left == {"spec.json", "record.json", "log.txt", "progress.jsonl", "model_summary.txt"}
    assert not home.places.journal.exists()
    assert not (home.places.home / "mlflow.db").exists()


def test_what_is_broken_off_is_marked_and_goes_on(home: Home, tmp_path: Path) -> None:
    kept = ("--epochs", "400", "--checkpoints", str(tmp_path / "kept"))
    stopped = home.broken_off(signal.SIGTERM, *home.run(*kept, "--out", str(tmp_path / "first")))
    assert stopped.returncode == 130, stopped.stderr
    assert "Interrupted: the run is marked" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert [run.info.status for run in home.runs()] == ["KILLED"], "at once"
    killed = home.broken_off(signal.SIGKILL, *home.run(*kept, "--out", str(tmp_path / "second")))
    assert killed.returncode == -signal.SIGKILL
    assert len(home.runs()) == 1, "nothing speaks to the store while it trains"
    done = home.laptime(*home.run(*kept, "--out", str(tmp_path / "third")))
    assert done.returncode == 0, done.stderr
    assert "1 run in sqlite:" in done.stderr
    newest, *others = home.runs()
    assert newest.info.status == "FINISHED"
    assert [run.info.status for run in others] == ["KILLED", "KILLED"]
    client = client_of(home.places.embedded_mlflow_uri)
    assert len(client.get_metric_history(newest.info.run_id, "epoch_s")) == 400, "those before the breaks, too"
    assert read_record(tmp_path / "third" / "record.json").restarts == 2
    assert waiting(home.places) == []
