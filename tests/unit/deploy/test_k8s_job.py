"""The base job template of the Kubernetes pool, through prefect-kubernetes' own classes."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Any

import kubernetes_validate
import pytest
from flows.optimize import optimize
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas import FlowRun
from prefect.utilities.schema_tools.validation import validate
from prefect_kubernetes.worker import KubernetesWorker, KubernetesWorkerJobConfiguration
from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import FOLDERS, K8S, Document, build, deployments, job_template

from laptime.catalogue import WORKLOADS
from laptime.launchers.manifest import job as launched_job
from laptime.launchers.settings import read_settings

GPU_NODE = {
    "node_selector": {"nvidia.com/gpu.present": "true"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
NAMES = {workload.name for workload in WORKLOADS}
IMAGE = "registry.example.com/laptime-trainer@sha256:" + "0" * 64


def job(**variables: Any) -> Document:
    """The Job that the worker sends for a flow run with these job variables."""
    template = job_template()
    validate(variables, template["variables"], raise_on_error=True, preprocess=True)
    # Not called: the template names no blocks and no variables of the server.
    client = PrefectClient("http://127.0.0.1:9/api")
    configuration = asyncio.run(
        KubernetesWorkerJobConfiguration.from_template_and_values(template, variables, client=client)
    )
    configuration.prepare_for_flow_run(FlowRun(id=uuid.uuid4(), flow_id=uuid.uuid4(), name="quick-hare"))
    return configuration.job_manifest


def check_valid(manifest: Document) -> None:
    """Against the strict schema, but for two fields that prefect-kubernetes demands in the pod, and a pod has not."""
    pod = dict(manifest["spec"]["template"]["spec"])
    assert (pod.pop("parallelism"), pod.pop("completions")) == (1, 1)
    template = {**manifest["spec"]["template"], "spec": pod}
    checked = {**manifest, "spec": {**manifest["spec"], "template": template}}
    kubernetes_validate.validate(checked, kubernetes_validate.latest_version(), strict=True)
    manifests.check_hardened(pod)


def pod_of(manifest: Document) -> Document:
    return manifest["spec"]["template"]["spec"]


def test_every_placeholder_is_declared_described_and_used() -> None:
    template = job_template()
    used = set(re.findall(r"\{\{ (\w+) \}\}", str(template["job_configuration"])))
    declared = template["variables"]["properties"]
    assert used == set(declared)
    for name, entry in declared.items():
        assert len(entry["description"]) > 10, name
        assert entry.get("title") or "$ref" in str(entry), name


def test_it_has_all_that_prefects_own_has() -> None:
    theirs, ours = KubernetesWorker.get_default_base_job_template(), job_template()
    assert set(theirs["variables"]["properties"]) < set(ours["variables"]["properties"])
    assert set(theirs["job_configuration"]) == set(ours["job_configuration"])
    assert theirs["variables"]["definitions"] == ours["variables"]["definitions"]


def test_without_gpus_no_nvidia_key_is_left() -> None:
    manifest = job(image=IMAGE)
    check_valid(manifest)
    assert "nvidia" not in str(manifest)
    assert pod_of(manifest)["nodeSelector"] == {}


def test_a_gpu_is_requested_and_limited_alike() -> None:
    manifest = job(image=IMAGE, gpus=2, shared_memory="8Gi", runtime_class_name="nvidia", **GPU_NODE)
    check_valid(manifest)
    pod = pod_of(manifest)
    resources = pod["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == 2
    assert pod["nodeSelector"] == GPU_NODE["node_selector"]
    assert pod["tolerations"] == GPU_NODE["tolerations"]
    assert pod["runtimeClassName"] == "nvidia"
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "shared-memory"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"gpus": "all"}, {"shared_memory": "lots"}, {"tolerations": "any"}])
def test_nonsense_is_refused_before_there_is_a_job(wrong: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(wrong))):
        job(**wrong)


def test_the_run_knows_its_image_its_threads_and_what_the_pool_was_told() -> None:
    entries = pod_of(job(image=IMAGE, env={"LAPTIME_DATA_MIRROR": "s3://other/data"}))["containers"][0]["env"]
    by_name = {entry["name"]: entry for entry in entries}
    assert len(by_name) == len(entries)
    assert by_name["LAPTIME_IMAGE"]["value"] == IMAGE
    assert by_name["OMP_NUM_THREADS"]["valueFrom"]["resourceFieldRef"]["resource"] == "limits.cpu"
    assert by_name["LAPTIME_DATA_MIRROR"]["value"] == "s3://other/data"


def test_two_timed_runs_share_no_node_unless_told_to() -> None:
    manifest = job(image=IMAGE)
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    (term,) = pod_of(manifest)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert manifests.matches(term["labelSelector"], labels)
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert pod_of(job(image=IMAGE, affinity={}))["affinity"] == {}


def test_a_finished_job_is_cleaned_up_and_kubernetes_starts_none_twice() -> None:
    spec = job(image=IMAGE)["spec"]
    assert spec["ttlSecondsAfterFinished"] > 0
    assert spec["backoffLimit"] == 0


@pytest.mark.parametrize("folder", FOLDERS)
@manifests.needs_kubectl
def test_deployments_of_an_overlay_fit_its_manifests(folder: str) -> None:
    documents = build(K8S / folder)
    data = next(
        d for d in manifests.of_kind(documents, "ConfigMap") if d["metadata"]["name"].startswith("laptime-pool")
    )
    assert data["data"]["base-job-template.json"] == manifests.TEMPLATE.read_text(encoding="utf-8")
    register = manifests.pod_of(manifests.named(documents, "Deployment", "prefect-worker"))["initContainers"][0]
    # The ranks of DDP on several nodes are CIFAR's alone.
    found = {deployment["name"] for deployment in deployments(folder)}
    assert found == {f"{w}-kubernetes" for w in ({"cifar"} if folder.endswith("ddp") else NAMES)}
    for deployment in deployments(folder):
        assert deployment["entrypoint"] == "flows/optimize.py:optimize"
        assert deployment["name"] == f"{deployment['parameters']['workload']}-kubernetes"
        optimize.validate_parameters(deployment["parameters"])
        pool = deployment["work_pool"]
        assert f"work-pool create {pool['name']}" in " ".join(register["args"])
        variables = {**pool["job_variables"], "image": IMAGE}
        assert pool["job_variables"]["image"] == "{{ $LAPTIME_KUBERNETES_IMAGE }}"
        manifest = job(**variables)
        check_valid(manifest)
        manifests.check_references(documents, pod_of(manifest), set())
        asked = pod_of(manifest)["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")
        assert asked == (1 if folder.endswith(("gpu", "ddp")) else None)


@manifests.needs_kubectl
def test_the_job_of_several_nodes_is_as_hardened_and_names_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the flow run of the overlay ddp launches it, with the variables that its own pod gets."""
    documents = build(K8S / "overlays" / "ddp")
    (container,) = pod_of(job(**_variables("overlays/ddp")))["containers"]
    for name, value in manifests.environment(documents, container).items():
        monkeypatch.setenv(name, value)
    settings = read_settings()
    made = launched_job(settings, "cuda-ddp-tuned-0a1b2c3d", settings.node_range, 60.0)
    pod = pod_of(made)
    account = manifests.named(documents, "ServiceAccount", pod["serviceAccountName"])
    assert made["metadata"]["namespace"] == account["metadata"]["namespace"]
    manifests.check_hardened(pod)
    # Temporary credentials alone have a session token, so the secret of docs/kubernetes.md holds none.
    variables = pod["containers"][0]["env"]
    (token,) = [entry for entry in variables if entry["name"] == "AWS_SESSION_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"]["optional"] is True
    variables.remove(token)
    manifests.check_references(documents, pod, set())
    assert pod["serviceAccountName"] != "laptime-launcher"
    assert pod["containers"][0]["image"] == IMAGE
    labels = manifests.labels_of(made)
    policies = manifests.of_kind(documents, "NetworkPolicy")
    applied = {p["metadata"]["name"] for p in policies if manifests.matches(p["spec"]["podSelector"], labels)}
    assert "ddp" in applied


@manifests.needs_kubectl
def test_only_a_run_that_launches_jobs_gets_a_token() -> None:
    pods = {folder: pod_of(job(**_variables(folder))) for folder in FOLDERS}
    with_token = [folder for folder, pod in pods.items() if pod["automountServiceAccountToken"]]
    assert with_token == ["overlays/ddp"]
    assert pods["overlays/ddp"]["serviceAccountName"] == "laptime-launcher"
    assert {pod["serviceAccountName"] for folder, pod in pods.items() if folder not in with_token} == {
        "laptime-trainer"
    }


def _variables(folder: str) -> dict[str, Any]:
    deployment = deployments(folder)[0]
    return {**deployment["work_pool"]["job_variables"], "image": IMAGE}
