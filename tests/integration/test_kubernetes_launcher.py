"""Launcher `kubernetes` against the calls that it makes, with real pods' commands on a real store."""

import json
import signal

import pytest
from cluster_server import running_cluster
from tests.samples import write_folder

from laptime.errors import LaptimeError, RunError, UsageError
from laptime.ladder.data import fetch_data
from laptime.launchers import kubernetes, launch, watch
from laptime.launchers.base import Hooks
from laptime.launchers.manifest import job, service
from laptime.launchers.settings import read_settings
from laptime.places import Places
from laptime.spec import OptimizationSpec, RunSpec

JOBS = "/apis/batch/v1/namespaces/laptime/jobs"
SERVICES = "/api/v1/namespaces/laptime/services"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("cluster")
    return fetch_data("cifar", str(write_folder(root / "images", train=4, test=1, size=8)), Places(root / "home"))


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    for name, value in {
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "LAPTIME_KUBERNETES_IMAGE": "trainer:1",
        "LAPTIME_RUN_STORE": str(tmp_path / "store"),
        "LAPTIME_KUBERNETES_STORE_PVC": "runs",
        "LAPTIME_HOME": str(tmp_path / "home"),
        "GLOO_SOCKET_IFNAME": "lo",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with running_cluster(tmp_path) as made:
        yield made


def spec_of(data, **changes) -> RunSpec:
    resident = (OptimizationSpec(name="resident"),)
    fields = {"workload": "cifar", "variant": "cpu-resident", "optimizations": resident, "data": data, "epochs": 2}
    rest = {"batch_size": 12, "warmup_epochs": 0, "check": False, "timeout_s": 120}
    return RunSpec(**{**fields, **rest, **changes})


def nothing_left(cluster) -> bool:
    deleted = [path for method, path in cluster.calls if method == "DELETE"]
    return not cluster.objects and any(p.startswith(JOBS) for p in deleted) and any(SERVICES in p for p in deleted)


def test_two_pods_train_one_net_and_its_record_comes_back_through_s3(cluster, data, tmp_path, monkeypatch, s3_server):
    s3_server.make_bucket("laptime")
    own = {"LAPTIME_RUN_STORE": "s3://laptime/runs", "LAPTIME_KUBERNETES_NODES": "2:2"}
    for name, value in {**s3_server.environment(), **own}.items():
        monkeypatch.setenv(name, value)
    spread = (OptimizationSpec(name="resident"), OptimizationSpec(name="ddp"))
    spec = spec_of(data, variant="cpu-ddp", optimizations=spread, ranks=2, save_model=True)
    lines, events, said = [], [], []
    hooks = Hooks(lines.append, events.append, said.append)
    record = launch("kubernetes", spec, tmp_path / "run", hooks)
    assert record.status == "done", (record.error, (tmp_path / "pod-0.txt").read_text()[-2000:])
    assert record.spec == spec
    assert (record.ranks, record.starts[0].nodes) == (2, 2)
    assert [e.index for e in record.kept] == [0, 1]
    assert all(e.checkpoint_s > 0 for e in record.epochs)
    assert json.loads((tmp_path / "run" / "record.json").read_text())["status"] == "done"
    for name in ("model.pt", "system.jsonl"):
        assert (tmp_path / "run" / name).stat().st_size > 0
    assert any("epoch 1" in line for line in lines)
    assert [e["index"] for e in events if e["event"] == "epoch"] == [0, 1]
    assert nothing_left(cluster)
    made = cluster.made["Job"]  # the client passes on what it is given, nothing left out
    run = made["metadata"]["name"].removeprefix("laptime-")
    assert made == job(read_settings(), run, (2, 2), 120.0)
    assert cluster.made["Service"] == service(read_settings(), run)


@pytest.mark.parametrize(
    ("status", "named"),
    [
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient cpu.",
                    }
                ],
            },
            "Insufficient cpu",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {
                        "name": "trainer",
                        "image": "trainer:1",
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
                    }
                ],
            },
            "LAPTIME_KUBERNETES_IMAGE",
        ),
        ({}, "exceeded quota"),
    ],
)
def test_what_keeps_pods_from_starting_is_told(cluster, data, tmp_path, monkeypatch, status, named):
    monkeypatch.setenv("LAPTIME_KUBERNETES_PENDING_S", "0.1")
    cluster.status = status
    cluster.events = [{"reason": "FailedCreate", "message": "pods is forbidden: exceeded quota: team"}]
    record = launch("kubernetes", spec_of(data), tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert named in record.error
    assert "\n" not in record.error
    assert nothing_left(cluster)


def ended(**state) -> dict:
    return {"phase": "Failed", "containerStatuses": [{"name": "trainer", "image": "trainer:1", "state": state}]}


@pytest.mark.parametrize(
    ("status", "condition", "named"),
    [
        (
            ended(terminated={"reason": "OOMKilled", "exitCode": 137}),
            {"type": "Failed", "reason": "BackoffLimitExceeded"},
            ["BackoffLimitExceeded", "ran out of memory", "LAPTIME_KUBERNETES_MEMORY"],
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            {"type": "Failed", "reason": "PodFailurePolicy"},
            ["was evicted (The node was low on resource: memory.)"],
        ),
        ({"phase": "Running"}, None, ["ran past its time-out of 0.5 s", "--timeout"]),
        ({"phase": "Succeeded"}, {"type": "Complete"}, ["the Job ended (Complete) without a record"]),
    ],
)
def test_how_pods_ended_without_a_record_is_told(cluster, data, tmp_path, monkeypatch, status, condition, named):
    monkeypatch.setattr(watch, "_LATE_S", 0.0)
    cluster.status, cluster.ended = status, condition
    earlier = tmp_path / "run" / "system.jsonl"
    earlier.parent.mkdir()
    earlier.write_text("{}")
    record = launch("kubernetes", spec_of(data, timeout_s=0.5), tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert not earlier.exists(), "the samples of an earlier try are none of this one"
    assert all(part in record.error for part in named), record.error
    assert str(tmp_path / "store") in record.error
    assert "\n" not in record.error
    assert nothing_left(cluster)


@pytest.mark.parametrize(
    ("call", "answer", "named"),
    [
        (("GET", "/pods"), (403, 'pods is forbidden: User "x" cannot list resource "pods"'), "laptime-launcher"),
        (("GET", "/pods"), (401, "Unauthorized"), "token"),
        (("POST", "/jobs"), (403, 'jobs.batch is forbidden: User "x" cannot create resource "jobs"'), "create jobs"),
        (("POST", "/services"), (404, 'namespaces "laptime" not found'), "LAPTIME_KUBERNETES_NAMESPACE"),
    ],
)
def test_a_refusal_is_one_sentence_and_leaves_nothing(cluster, data, tmp_path, call, answer, named):
    cluster.refuse[call] = answer
    with pytest.raises(RunError) as caught:
        launch("kubernetes", spec_of(data), tmp_path / "run", Hooks())
    assert named in str(caught.value)
    assert answer[1] in str(caught.value)
    assert not cluster.objects


def test_a_busy_api_server_is_asked_again_and_nothing_is_left(cluster, data, tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes, "LOOK_EVERY_S", 0.01)
    monkeypatch.setenv("LAPTIME_KUBERNETES_PENDING_S", "0.1")
    cluster.busy = {("GET", "/pods"): 2, ("POST", "/services"): 1, ("POST", "/jobs"): 1, ("DELETE", ""): 3}
    cluster.status, said = {"phase": "Pending"}, []
    record = launch("kubernetes", spec_of(data), tmp_path / "run", Hooks(say=said.append))
    assert "no pod of the run started" in record.error
    assert set(cluster.busy.values()) == {0}
    assert nothing_left(cluster)
    assert sum("Asking again for 60 s" in line for line in said) == 4
    assert not any("may be left" in line for line in said)


def test_a_cluster_that_stays_away_is_told(cluster, data, tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(kubernetes, "AWAY_S", 0.1)
    cluster.busy = {("GET", "/pods"): 10**6}
    with pytest.raises(RunError, match=r"can't list pods now \(503"):
        launch("kubernetes", spec_of(data), tmp_path / "run", Hooks())


def test_ctrl_c_while_it_deletes_leaves_nothing(cluster, data, tmp_path, monkeypatch):
    deleting = kubernetes.Cluster._call

    def pressed(self, call, what, **given):
        if what.startswith("delete"):
            signal.raise_signal(signal.SIGINT)
        return deleting(self, call, what, **given)

    monkeypatch.setattr(kubernetes.Cluster, "_call", pressed)
    monkeypatch.setenv("LAPTIME_KUBERNETES_PENDING_S", "0.1")
    cluster.status = {"phase": "Pending"}
    with pytest.raises(KeyboardInterrupt):
        launch("kubernetes", spec_of(data), tmp_path / "run", Hooks())
    assert nothing_left(cluster)


def test_an_interruption_leaves_nothing(cluster, data, tmp_path):
    def interrupt(sentence):
        raise KeyboardInterrupt

    cluster.status = {"phase": "Pending"}
    with pytest.raises(KeyboardInterrupt):
        launch("kubernetes", spec_of(data), tmp_path / "run", Hooks(say=interrupt))
    assert nothing_left(cluster)


def test_without_a_cluster_there_is_one_sentence(data, tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("LAPTIME_KUBERNETES_IMAGE", "trainer:1")
    monkeypatch.setenv("LAPTIME_RUN_STORE", str(tmp_path))
    monkeypatch.setenv("LAPTIME_KUBERNETES_STORE_PVC", "runs")
    monkeypatch.setattr(kubernetes, "AWAY_S", 2.0)
    for config, kind in ((tmp_path / "none", UsageError), (tmp_path / "away", RunError)):
        where = {"clusters": [{"name": "t", "cluster": {"server": "http://127.0.0.1:9"}}], "users": []}
        context = [{"name": "t", "context": {"cluster": "t", "user": "t"}}]
        if kind is RunError:
            config.write_text(json.dumps({**where, "contexts": context, "current-context": "t"}))
        monkeypatch.setenv("KUBECONFIG", str(config))
        with pytest.raises(LaptimeError, match="KUBECONFIG") as caught:
            launch("kubernetes", spec_of(data), tmp_path / "run", Hooks())
        assert isinstance(caught.value, kind)
        assert "\n" not in str(caught.value)
