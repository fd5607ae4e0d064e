"""k8s/: what kustomize builds is valid, complete, and shut off."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import kubernetes_validate
import yaml
from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import (
    FOLDERS,
    K8S,
    ROOT,
    Document,
    build,
    each_container,
    labels_of,
    matches,
    named,
    of_kind,
    pod_of,
    workloads,
)

pytestmark = manifests.needs_kubectl
DOCKERFILE = ROOT / "docker" / "Dockerfile"
COMPOSE = ROOT / "docker" / "compose.yaml"
OWN_IMAGES = {"laptime-trainer", "laptime-worker", "laptime-mlflow"}


def test_every_object_passes_the_strict_schema(documents: tuple[Document, ...]) -> None:
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_everything_stands_in_the_one_namespace_which_is_restricted(documents: tuple[Document, ...]) -> None:
    (namespace,) = of_kind(documents, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [document["metadata"].get("namespace") for document in documents if document is not namespace]
    assert set(others) == {namespace["metadata"]["name"]}


def test_workloads_select_their_own_pods_and_no_others(documents: tuple[Document, ...]) -> None:
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        taken = [w for w in workloads(documents) if matches(workload["spec"]["selector"], labels_of(w))]
        assert taken == [workload]


def test_services_lead_to_the_named_port_of_one_workload(documents: tuple[Document, ...]) -> None:
    for service in of_kind(documents, "Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        (workload,) = [w for w in workloads(documents) if matches(selector, labels_of(w))]
        ports = {p["name"]: p["containerPort"] for c in pod_of(workload)["containers"] for p in c.get("ports", [])}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


def test_nothing_is_reachable_from_outside_of_the_cluster(documents: tuple[Document, ...]) -> None:
    kinds = {document["kind"] for document in documents}
    assert not kinds & {"Ingress", "Gateway", "HTTPRoute"}
    assert {service["spec"].get("type", "ClusterIP") for service in of_kind(documents, "Service")} == {"ClusterIP"}
    for service in of_kind(documents, "Service"):
        assert "externalIPs" not in service["spec"]


def test_what_a_pod_names_is_there(documents: tuple[Document, ...]) -> None:
    for workload in workloads(documents):
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        manifests.check_references(documents, pod_of(workload), claims)
        if workload["kind"] == "StatefulSet":
            named(documents, "Service", workload["spec"]["serviceName"])


def test_pods_are_shut_off(documents: tuple[Document, ...]) -> None:
    for workload in workloads(documents):
        pod = pod_of(workload)
        manifests.check_hardened(pod)
        assert pod["automountServiceAccountToken"] is (workload["metadata"]["name"] == "prefect-worker")


def test_containers_say_what_they_need_and_how_they_fare(documents: tuple[Document, ...]) -> None:
    for name, container in each_container(documents):
        for side in ("requests", "limits"):
            assert {"cpu", "memory"} <= set(container["resources"][side]), name
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        for container in pod_of(workload)["containers"]:
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container[probe].get("httpGet", {}).get("port")
                assert asked is None or asked in ports


def test_images_are_named_exactly(documents: tuple[Document, ...]) -> None:
    for name, container in each_container(documents):
        image, _, tag = container["image"].rpartition(":")
        assert tag not in ("", "latest"), name
        assert re.fullmatch(r"[a-z0-9./-]+", image), name
        if image.startswith("laptime"):
            assert image in OWN_IMAGES


def test_own_images_are_targets_of_the_dockerfile() -> None:
    targets = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE.read_text(encoding="utf-8"), re.M)
    assert {name.removeprefix("laptime-") for name in OWN_IMAGES} <= set(targets)


def test_compose_runs_the_same_stores() -> None:
    stores = of_kind(build(K8S / "base"), "StatefulSet")
    images = {container["image"] for store in stores for container in pod_of(store)["containers"]}
    text = COMPOSE.read_text(encoding="utf-8")
    assert len(images) == 2
    assert all(image in text for image in images)


def test_the_tree_holds_no_secret() -> None:
    for folder in FOLDERS:
        assert not of_kind(build(K8S / folder), "Secret")


def test_the_documented_secrets_are_all_that_are_used() -> None:
    used: dict[str, set[str]] = {}
    for _, container in each_container(build(K8S / "base")):
        for entry in container.get("env", []):
            reference = entry.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                used.setdefault(reference["name"], set()).add(reference["key"])
    assert manifests.secret_keys() == used | {"laptime-s3": {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}}


def test_mlflow_answers_to_each_name_that_it_is_called_by(documents: tuple[Document, ...]) -> None:
    (container,) = pod_of(named(documents, "Deployment", "mlflow"))["containers"]
    allowed = manifests.environment(documents, container)["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    run = named(documents, "ConfigMap", "laptime-run")["data"]
    for key in ("MLFLOW_TRACKING_URI", "LAPTIME_MLFLOW_UI"):
        assert urlsplit(run[key]).netloc in allowed


def test_the_buckets_that_are_made_are_those_that_are_used() -> None:
    documents = build(K8S / "base")
    (container,) = pod_of(named(documents, "Job", "make-buckets"))["containers"]
    values = [
        *named(documents, "ConfigMap", "laptime-run")["data"].values(),
        *(value for _, c in each_container(documents) for value in manifests.environment(documents, c).values()),
    ]
    used = {urlsplit(value).netloc for value in values if value.startswith("s3://")}
    assert used == set(container["args"][2:])


def test_roles_hold_no_secret_no_wildcard_and_no_cluster(documents: tuple[Document, ...]) -> None:
    assert not of_kind(documents, "ClusterRole", "ClusterRoleBinding")
    for binding in of_kind(documents, "RoleBinding"):
        role = named(documents, "Role", binding["roleRef"]["name"])
        for subject in binding["subjects"]:
            named(documents, "ServiceAccount", subject["name"])
            assert subject["namespace"] == "laptime"
        for rule in role["rules"]:
            assert not {"*", "secrets", "pods/exec"} & {*rule["resources"], *rule["verbs"], *rule["apiGroups"]}


def test_external_has_no_stores_of_its_own() -> None:
    documents = build(K8S / "overlays/external")
    assert not of_kind(documents, "StatefulSet", "Job")
    for document in documents:
        assert document["metadata"].get("labels", {}).get("app.kubernetes.io/component") != "store"
    hosts = named(documents, "ConfigMap", "laptime-run")["data"]["AWS_ENDPOINT_URL"]
    assert hosts.startswith("https://")


def test_an_overlay_of_the_users_own_names_its_images_once(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    (example,) = [b for b in re.findall(r"```yaml\n(.*?)```", text, re.S) if "kind: Kustomization" in b]
    shutil.copytree(K8S, tmp_path / "k8s")
    own = tmp_path / "k8s" / "overlays" / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(example, encoding="utf-8")
    wanted = {image["name"]: f"{image['newName']}:{image['newTag']}" for image in yaml.safe_load(example)["images"]}
    assert set(wanted) == OWN_IMAGES
    documents = build(own)
    images = {container["image"] for _, container in each_container(documents)}
    assert set(wanted.values()) <= images
    assert not images & {f"{name}:dev" for name in OWN_IMAGES}
    (register,) = pod_of(named(documents, "Deployment", "prefect-worker"))["initContainers"]
    told = manifests.environment(documents, register)["LAPTIME_KUBERNETES_IMAGE"]
    assert told == wanted["laptime-trainer"]
