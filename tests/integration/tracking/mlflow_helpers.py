"""A real MLflow server, and ladders to publish to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracking_samples import a_ladder, a_record, write_run

from laptime.cli.servers import HOST, answers
from laptime.places import Places
from laptime.processes import end_tree, free_port
from laptime.records import LadderRecord, Rung, write_json
from laptime.tracking import Journal
from laptime.tracking.publish import ladder_finished, ladder_started, variant_recorded

VARIANTS = ("cpu-baseline", "cpu-a")


def client_of(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def write_ladder(places: Places, ladder_id: str, target: str | None = None, end: bool = True) -> LadderRecord:
    ladder = a_ladder(ladder_id, VARIANTS).model_copy(update={"repeats": 2})
    folder = places.runs / ladder.id
    write_json(folder / "ladder.json", ladder)
    with Journal(places.journal / f"{ladder.id}.jsonl", target) as journal:
        ladder_started(journal, ladder)
        for variant in VARIANTS:
            records = [a_record(variant, n) for n in range(2)]
            for record in records:
                write_run(folder, record)
            variant_recorded(journal, ladder, Rung(variant=variant), records, folder)
        if end:
            done = ladder.model_copy(update={"status": "done", "ended_at": 2000.0})
            ladder_finished(journal, done, {"speedup": 2.0}, "# It is done", {"ladder.json": folder / "ladder.json"})
    return ladder


def everything(uri: str, ladder: LadderRecord) -> dict[str, Any]:
    """All that a store holds of a ladder, by key."""
    client = client_of(uri)
    experiment = client.get_experiment_by_name("cifar").experiment_id
    found: dict[str, Any] = {}
    for run in client.search_runs([experiment], max_results=1000):
        key = run.data.tags["laptime.key"]
        if not key.startswith(ladder.id):
            continue
        assert key not in found, "a run was created twice"
        histories = {
            name: sorted((m.step, m.timestamp, repr(m.value)) for m in client.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        }
        files = sorted(f.path for f in client.list_artifacts(run.info.run_id))
        found[key] = (run.info.status, run.info.start_time, run.info.end_time, run.data.params, histories, files)
    return found


def quiet(text: str) -> None:
    pass


@dataclass
class MlflowServer:
    """A real server on SQLite that can be stopped and started again at the same address."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(self.port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"),
            *("--artifacts-destination", str(self.folder / "artifacts")),
        ]
        log = (self.folder / "log.txt").open("ab")
        off = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **off}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        for _ in range(600):
            if answers(f"{self.uri}/health"):
                return
            assert self.process.poll() is None, (self.folder / "log.txt").read_text()
            time.sleep(0.1)
        raise AssertionError("the MLflow server did not start")

    def stop(self) -> None:
        if self.process is not None:
            end_tree(self.process.pid)
            self.process.wait()
            self.process = None


@contextmanager
def a_server(folder: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
