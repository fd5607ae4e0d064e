"""The Job and its Service are what Kubernetes takes, and belong together; settings are refused in one sentence."""

import argparse
import copy

import pytest
from tests.unit.conftest import make_spec

from laptime.errors import UsageError
from laptime.launchers import launcher_of, ranks_there
from laptime.launchers.manifest import command, job, name_of, service
from laptime.launchers.settings import Settings, read_settings
from laptime.nodes import Nodes, add_options, read_nodes

RUN = "cpu-ddp-tuned-with-a-very-long-0a1b2c3d"


def settings(**changes) -> Settings:
    return Settings(**{"image": "registry.test/laptime-trainer:1", "store": "s3://laptime/runs", **changes})


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("LAPTIME_RUN_STORE", "s3://laptime/runs/")
    monkeypatch.setenv("LAPTIME_KUBERNETES_IMAGE", "trainer:1")
    return monkeypatch


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"gpus": 2, "nodes": "1:4", "pvc": "laptime-data"},
        {"store": "/shared/runs", "store_pvc": "runs"},
    ],
)
def test_the_manifests_are_valid(more):
    validate = pytest.importorskip("kubernetes_validate")
    made = settings(**more)
    for manifest in (job(made, RUN, made.node_range, 60.0), service(made, RUN)):
        validate.validate(copy.deepcopy(manifest), validate.latest_version(), strict=True)


def test_job_and_service_belong_together():
    made = settings(nodes="2:3", gpus=1)
    spec, front = job(made, RUN, (2, 3), 60.0)["spec"], service(made, RUN)
    pod = spec["template"]["spec"]
    assert front["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod["subdomain"] == front["metadata"]["name"] == name_of(RUN)
    assert len(f"{name_of(RUN)}-15") <= 63
    assert (spec["completionMode"], spec["completions"], spec["maxFailedIndexes"]) == ("Indexed", 3, 1)
    (box,) = pod["containers"]
    assert {m["name"] for m in box["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert box["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert box["ports"][0]["containerPort"] == front["spec"]["ports"][0]["port"]
    assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == box["name"]


def test_a_pod_s_command_line_is_read_as_it_is_written(monkeypatch):
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    words = command(settings(nodes="1:3", gpus=4, restarts=7), RUN, (1, 3))
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("name")
    parser.add_argument("--ranks", type=int)
    add_options(parser)
    given = parser.parse_args(words[3:])
    assert (given.store, given.name, given.ranks) == ("s3://laptime/runs", RUN, 4)
    place = f"{name_of(RUN)}-0.{name_of(RUN)}:29400"
    assert read_nodes(given) == Nodes(1, 3, place, RUN, index=2, address="$(LAPTIME_POD_IP)", restarts=7)
    again = parser.parse_args(["s", "r", "--ranks", "4", *read_nodes(given).words()])
    assert read_nodes(again) == read_nodes(given)


def test_settings_come_from_the_environment(environment):
    environment.setenv("LAPTIME_KUBERNETES_NODES", "2:4")
    environment.setenv("LAPTIME_KUBERNETES_GPUS", "8")
    for name in ("SERVICE_HOST", "PORT_80_TCP_ADDR", "OTHER_SERVICE_PORT_HTTP"):  # of services that are called so
        environment.setenv(f"LAPTIME_KUBERNETES_{name}", "10.0.0.1")
    environment.setenv("LAPTIME_KUBERNETES_IMAGE", "trainer:1\n")  # out of a file
    found = read_settings()
    assert found.image == "trainer:1"
    assert (found.node_range, found.ranks_of_a_pod, found.store) == ((2, 4), 8, "s3://laptime/runs")
    assert ranks_there("kubernetes") == 32
    assert ranks_there("torchrun") is None
    assert launcher_of("kubernetes", "cuda-ddp", 32) == "kubernetes"


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("LAPTIME_RUN_STORE", "", "LAPTIME_RUN_STORE is not set"),
        ("LAPTIME_RUN_STORE", "/shared/runs", "LAPTIME_KUBERNETES_STORE_PVC"),
        ("LAPTIME_KUBERNETES_IMAGE", "", "LAPTIME_KUBERNETES_IMAGE is not set"),
        ("LAPTIME_KUBERNETES_IMAGE", "registry.test/Laptime:1", "the path in small letters (given 'registry.test/Lap"),
        ("LAPTIME_KUBERNETES_IMAGE", "trainer 1", "must be an image's name"),
        ("LAPTIME_KUBERNETES_NODES", "3:2", "nodes"),
        ("LAPTIME_KUBERNETES_NODES", "many", "many"),
        ("LAPTIME_KUBERNETES_GPUS", "-1", "gpus"),
        ("LAPTIME_KUBERNETES_MEMORY", "lots", "memory"),
        ("LAPTIME_KUBERNETES_NAMESPACE", "a/../b", "namespace"),
        ("LAPTIME_KUBERNETES_NAMESPACE", "team.a", "namespace"),
        ("LAPTIME_KUBERNETES_PENDING_S", "inf", "pending_s"),
        ("LAPTIME_KUBERNETES_NODE", "2", "did you mean LAPTIME_KUBERNETES_NODES"),
        ("LAPTIME_RUN_STORE", "runs", "can't be mounted"),
        ("LAPTIME_RUN_STORE", "gs://bucket/runs", "can't be mounted"),
        ("LAPTIME_RUN_STORE", "/mnt/a:b", "can't be mounted"),
        ("LAPTIME_RUN_STORE", "/tmp/", "can't be mounted"),
    ],
)
def test_a_wrong_setting_is_one_sentence(environment, name, value, named):
    environment.delenv("LAPTIME_IMAGE", raising=False)
    environment.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        read_settings()
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "image",
    [
        "trainer",
        "team/trainer_x:Dev-1.2",
        "Localhost:5000/a/b-c__d.e:latest",
        "[::1]:5000/trainer:1",
        "registry.test/trainer:1@sha256:" + "0a" * 32,
    ],
)
def test_names_of_images(image):
    assert settings(image=image).image == image


def test_ranks_that_fill_no_pods_are_refused():
    assert settings(nodes="2:4", gpus=2).pods_of(make_spec(ranks=6)) == (2, 3)
    assert settings(nodes="2:4").pods_of(make_spec(ranks=1)) == (1, 1)
    for made, spec in (
        (settings(nodes="1:4", gpus=2), make_spec(ranks=3)),
        (settings(nodes="1:2"), make_spec(ranks=3)),
        (settings(), make_spec(device="cuda")),
    ):
        with pytest.raises(UsageError, match="LAPTIME_KUBERNETES_"):
            made.pods_of(spec)
