"""The services of a team as processes on loopback: Postgres, S3, MLflow on both, Prefect on Postgres, workers."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from ports import free_port
from s3_server import S3Server, run_s3_server
from services_postgres import a_postgres, missing

from laptime.cli.servers import HOST, Stack, environment, stack
from laptime.places import Places

ROOT = Path(__file__).parents[3]
DEPLOYMENT = "optimize/cifar"
# Nothing of this machine's may leak in: neither stores nor credentials.
_OURS = ("AWS_", "LAPTIME_", "MLFLOW_", "PREFECT_")
_FINAL = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
SMALL = {
    "data": "synthetic",
    "limit_train": 64,
    "limit_test": 32,
    "epochs": 1,
    "warmup_epochs": 0,
    "repeats": 1,
    "profile": "none",
    "variants": "cpu-baseline,cpu-resident",
}


@dataclass
class Services:
    """What runs.

    Attributes:
        clients: what a client needs: two addresses and its LAPTIME_HOME, no credentials.
        workers: the workers' processes, whose flow runs inherit `clients`.
    """

    folder: Path
    s3: S3Server
    mlflow: str
    prefect: str
    places: Places
    clients: Stack

    def start_worker(self, name: str, limit: int = 1) -> None:
        """Starts a worker of the process pool."""
        pool = ["--pool", "laptime", "--type", "process", "--name", name, "--limit", str(limit)]
        self.clients.start(name, "prefect", ["worker", "start", *pool])

    def kill_worker(self) -> list[psutil.Process]:
        """Kills the youngest worker, not its keeper; returns the processes of its flow runs."""
        server = self.clients.servers.pop()
        (worker,) = psutil.Process(server.process.pid).children()
        runs = worker.children()
        worker.kill()
        return runs

    def run(self, variables: dict[str, str] | None = None, **parameters: object) -> str:
        """Schedules a flow run with tiny limits; returns its id. `variables` are its environment's."""
        given = [part for n, v in {**SMALL, **parameters}.items() for part in ("-p", f"{n}={json.dumps(v)}")]
        if variables:
            given += ["-jv", f"env={json.dumps(variables)}"]
        before = self._runs()
        self.clients.run("prefect", ["deployment", "run", DEPLOYMENT, *given], ROOT)
        (new,) = self._runs() - before
        return new

    def _runs(self) -> set[str]:
        return {found["id"] for found in self.ask("flow_runs/filter", {})}

    def ask(self, path: str, body: object = None) -> Any:
        """Asks Prefect's API: GET, or POST with a body."""
        request = urllib.request.Request(
            f"{self.prefect}/api/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def wait(self, run: str, seconds: float = 240.0) -> tuple[str, str]:
        """Waits for the end of a flow run; returns the type and the message of its state."""
        until = time.monotonic() + seconds
        while True:
            state = self.ask(f"flow_runs/{run}")["state"] or {"type": "none", "message": ""}
            if state["type"] in _FINAL:
                return state["type"], str(state["message"])
            for server in self.clients.servers:
                server.require_alive()
            assert time.monotonic() < until, f"{run} is {state['type']} after {seconds:.0f} s\n{self.words()}"
            time.sleep(0.5)

    def words(self) -> str:
        """The last words of all logs."""
        logs = sorted(self.folder.rglob("logs/*.log"))
        return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def trainers(self) -> list[psutil.Process]:
        """The training processes of these services' flow runs."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "laptime.worker" in line and any(str(self.folder) in part for part in line):
                found.append(process)
        return found

    def tracked(self) -> list[Any]:
        """MLflow's runs of the workload, the youngest first."""
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=self.mlflow, registry_uri=self.mlflow)
        experiment = client.get_experiment_by_name("cifar")
        return list(client.search_runs([experiment.experiment_id], max_results=1000)) if experiment else []


@contextmanager
def running() -> Iterator[Services]:
    """Runs all services with two databases, two buckets, a pool and the deployment; ends them in every case."""
    with ExitStack() as held:
        # Postgres is another user than root, to whom pytest's folders are closed.
        folder = Path(tempfile.mkdtemp(prefix="laptime-services-"))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        passwords = {"mlflow": "mlflow-secret", "prefect": "prefect-secret"}
        database = held.enter_context(a_postgres(folder / "postgres", passwords))
        (folder / "s3").mkdir()
        s3 = held.enter_context(contextmanager(run_s3_server)(folder / "s3"))
        for bucket in ("mlflow", "laptime"):
            s3.make_bucket(bucket)
        yield held.enter_context(_servers(folder, database, s3, passwords))


@contextmanager
def _servers(folder: Path, database: str, s3: S3Server, passwords: dict[str, str]) -> Iterator[Services]:
    places = Places(folder / "home")
    mlflow_port, prefect_port = free_port(), free_port()
    mlflow, prefect = f"http://{HOST}:{mlflow_port}", f"http://{HOST}:{prefect_port}"

    def address(kind: str, name: str) -> str:
        return f"{kind}://{name}:{passwords[name]}@{database}/{name}"

    ours = environment(places)
    clean = {k: v for k, v in ours.items() if not k.startswith(_OURS) or k in _quiet(ours)}
    addresses = {"PREFECT_API_URL": f"{prefect}/api", "MLFLOW_TRACKING_URI": mlflow}
    of_servers = {
        **clean,
        **s3.environment(),
        "MLFLOW_S3_ENDPOINT_URL": s3.endpoint,
        "MLFLOW_BACKEND_STORE_URI": address("postgresql+psycopg2", "mlflow"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": address("postgresql+asyncpg", "prefect"),
    }
    destination = ("--serve-artifacts", "--artifacts-destination", "s3://mlflow/artifacts")
    with stack(places, of_servers) as servers, stack(places, {**clean, **addresses}) as clients:
        api = servers.start("prefect", "prefect", ["server", "start", "--host", HOST, "--port", str(prefect_port)])
        runs = servers.start(
            "mlflow",
            "mlflow",
            ["server", "--host", HOST, "--port", str(mlflow_port), "--workers", "1", *destination],
        )
        servers.wait_for(api, f"{prefect}/api/health")
        clients.run("prefect", ["work-pool", "create", "laptime", "--type", "process"], ROOT)
        clients.run("prefect", ["--no-prompt", "deploy", "--name", DEPLOYMENT], ROOT)
        servers.wait_for(runs, f"{mlflow}/health")
        services = Services(folder, s3, mlflow, prefect, places, clients)
        services.start_worker("worker-1")
        yield services


def _quiet(variables: dict[str, str]) -> set[str]:
    """What `environment` sets, apart from what this process has in its own."""
    return {name for name, value in variables.items() if os.environ.get(name) != value}


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    """All services, for a module; skips where there is no Postgres."""
    if reason := missing():
        pytest.skip(reason)
    with running() as found:
        yield found


if __name__ == "__main__":
    # To look at them, see CONTRIBUTING.md.
    with running() as shown:
        sys.stdout.write(f"{shown.prefect}\n{shown.mlflow}\n{shown.folder}\n")
        sys.stdout.flush()
        shown.clients.watch()
