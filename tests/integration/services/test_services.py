"""The flow on the services that a team runs: Postgres, S3, MLflow on both, Prefect on Postgres, workers."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from services_stack import DEPLOYMENT, ROOT, Services
from tests.warned import BY_MLFLOW

from laptime.launchers.lock import device_lock
from laptime.records import read_record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    *BY_MLFLOW,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
MIRROR = "s3://laptime/data"
CHROMIUM = shutil.which("chromium")
# Promised are 5 s; a busy machine of two cores may leave a process for seconds without a turn.
_GONE_S = 10.0


@pytest.fixture(scope="module")
def first(services: Services) -> str:
    """The flow run that the other tests look at."""
    run = services.run()
    kind, message = services.wait(run)
    assert kind == "COMPLETED", f"{message}\n{services.words()}"
    return run


def ladders(services: Services) -> list[tuple[Any, list[Any]]]:
    """MLflow's parent runs with their children."""
    runs = services.tracked()
    parents = [run for run in runs if run.data.tags["laptime.kind"] == "ladder"]
    return [
        (parent, [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id])
        for parent in parents
    ]


def objects(services: Services, bucket: str, prefix: str) -> list[str]:
    keys = {"aws_access_key_id": services.s3.access_key, "aws_secret_access_key": services.s3.secret_key}
    s3 = boto3.Session().client("s3", endpoint_url=services.s3.endpoint, region_name="us-east-1", **keys)
    return [said["Key"] for said in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]


def report_of(services: Services, run_id: str, to: Path) -> Path:
    from mlflow.artifacts import download_artifacts

    return Path(
        download_artifacts(
            run_id=run_id, artifact_path="comparison.html", dst_path=str(to), tracking_uri=services.mlflow
        )
    )


def test_the_deployment_runs_through_the_worker_into_mlflow(services: Services, first: str, tmp_path: Path) -> None:
    (parent, children), *others = ladders(services)
    assert others == []
    assert {run.info.status for run in (parent, *children)} == {"FINISHED"}
    assert sorted(run.data.tags["laptime.variant"] for run in children) == ["cpu-baseline", "cpu-resident"]
    for run in children:
        assert run.data.metrics["epoch_s_median"] > 0
        assert run.data.metrics["speedup"] > 0
        assert 0 <= run.data.metrics["test_accuracy"] <= 1
    # The clients have no credentials: what stands in S3 went through the server, and comes back through it.
    prefix = f"artifacts/{parent.info.experiment_id}/{parent.info.run_id}/"
    assert any(key.endswith("/comparison.html") for key in objects(services, "mlflow", prefix))
    assert "<table" in report_of(services, parent.info.run_id, tmp_path).read_text()


def test_the_report_opens_in_a_browser(services: Services, first: str, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    report = report_of(services, ladders(services)[0][0].info.run_id, tmp_path)
    picture = tmp_path / "report.png"
    shown = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000"),
            *("--virtual-time-budget=5000", f"--screenshot={picture}", "--dump-dom", report.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "cpu-resident" in shown.stdout
    assert shown.stdout.count("<table") >= 1
    assert shown.stdout.count("<svg") >= 1
    assert [line for line in shown.stderr.splitlines() if "CONSOLE" in line] == []
    assert picture.stat().st_size > 20_000


def test_a_second_machine_finds_the_data_on_s3(services: Services, first: str) -> None:
    home = services.folder / "second"
    with_keys = {**services.clients.environment, **services.s3.environment()}
    pushed = subprocess.run(
        [sys.executable, "-m", "laptime", "data", "push", "cifar", "--data", "synthetic", "--to", MIRROR],
        env=with_keys,
        capture_output=True,
        text=True,
        check=False,
    )
    assert pushed.returncode == 0, pushed.stderr
    assert len(objects(services, "laptime", "data/cifar/")) == 6
    mine = {"LAPTIME_HOME": str(home), "LAPTIME_DATA_MIRROR": MIRROR, **services.s3.environment()}
    kind, message = services.wait(services.run(mine, data="auto", variants="cpu-baseline"))
    assert kind == "COMPLETED", f"{message}\n{services.words()}"
    (record,) = (read_record(path) for path in (home / "runs").glob("*/*/record.json"))
    before = next(iter((services.places.runs).glob("*/cpu-baseline-0/record.json")))
    assert record.spec.data.asked == "auto"
    assert record.spec.data.digest == read_record(before).spec.data.digest
    # Found there, not generated a second time; what was a stand-in stays one.
    assert list((home / "data" / "index").glob("*.json"))
    assert record.spec.data.kind == "synthetic"
    assert "could not be had" not in record.spec.data.notice


def test_a_cancelled_flow_run_leaves_no_process_and_nothing_at_running(services: Services, first: str) -> None:
    run = training(services)
    services.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})
    none_left(services, "cancellation", [])
    assert services.wait(run, 60)[0] == "CANCELLED"
    none_running(services)


def test_a_killed_worker_leaves_no_process_and_nothing_at_running(services: Services, first: str) -> None:
    training(services)
    engines = services.kill_worker()
    assert len(engines) == 1
    none_left(services, "worker's end", engines)
    said: list[str] = []
    with device_lock("cpu", said.append):
        assert not any(str(engines[0].pid) in words for words in said)
    listed = [sys.executable, "-m", "laptime", "list", "workloads"]
    subprocess.run(listed, env=services.clients.environment, capture_output=True, check=True)
    none_running(services)
    services.start_worker("worker-after")


def training(services: Services) -> str:
    """Begins a flow run that goes on for minutes; returns its id when it trains."""
    run = services.run(limit_train=20_000, epochs=50)
    until = time.monotonic() + 120
    while not services.trainers():
        assert time.monotonic() < until, services.words()
        time.sleep(0.2)
    return run


def none_left(services: Services, after: str, engines: list[psutil.Process]) -> None:
    """Waits for the end of all training and of these processes."""
    since = time.monotonic()
    while left := [*services.trainers(), *(found for found in engines if found.is_running())]:
        assert time.monotonic() < since + _GONE_S, f"{left} are left\n{services.words()}"
        time.sleep(0.1)
    sys.stdout.write(f"no training process {time.monotonic() - since:.1f} s after the {after}\n")


def none_running(services: Services) -> None:
    """The youngest ladder and its runs are ended in MLflow as killed, and nothing else is open."""
    parent, children = max(ladders(services), key=lambda ladder: ladder[0].info.start_time)
    assert {found.info.status for found in (parent, *children)} == {"KILLED"}
    assert [found for found in services.tracked() if found.info.status == "RUNNING"] == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_eight_flows_at_once(services: Services, first: str) -> None:
    services.start_worker("worker-2", limit=4)
    services.start_worker("worker-3", limit=4)
    known = {parent.info.run_id for parent, _ in ladders(services)}
    started = time.monotonic()
    runs = [services.run(seed=number, limit_train=256) for number in range(8)]
    assert {services.wait(run, 1500)[0] for run in runs} == {"COMPLETED"}, services.words()
    new = [(parent, children) for parent, children in ladders(services) if parent.info.run_id not in known]
    assert len(new) == 8
    assert {run.info.status for parent, children in new for run in (parent, *children)} == {"FINISHED"}
    assert [len(children) for _, children in new] == [2] * 8
    assert all(run.data.metrics["epoch_s_median"] > 0 for _, children in new for run in children)
    records = [read_record(path) for path in services.places.runs.glob("*/*/record.json")]
    spans = sorted((record.started_at or 0.0, record.ended_at or 0.0) for record in records if record.status == "done")
    assert len(spans) >= 18
    overlaps = [(a, b) for a, b in itertools.pairwise(spans) if b[0] < a[1]]
    assert overlaps == []
    sys.stdout.write(f"8 flows, {len(spans)} timed runs in {time.monotonic() - started:.0f} s, none overlapping\n")


def test_the_deployment_is_the_one_of_the_tree(services: Services) -> None:
    flow, name = DEPLOYMENT.split("/")
    found = services.ask(f"deployments/name/{flow}/{name}")
    assert found["work_pool_name"] == "laptime"
    assert Path(found["path"] or ROOT).samefile(ROOT)
