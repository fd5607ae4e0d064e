"""What kustomize makes of k8s/, and how to look at it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
K8S = ROOT / "k8s"
BASE = K8S / "base"
OVERLAYS = sorted(folder.name for folder in (K8S / "overlays").iterdir())
FOLDERS = ["base", *(f"overlays/{name}" for name in OVERLAYS)]
TEMPLATE = BASE / "base-job-template.json"

Document = dict[str, Any]
"""A Kubernetes object, as data."""

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@cache
def build(folder: Path) -> tuple[Document, ...]:
    """The objects of a kustomization, as `kubectl apply --kustomize` would send them."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(documents: tuple[Document, ...], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def named(documents: tuple[Document, ...], kind: str, name: str) -> Document:
    found = [document for document in of_kind(documents, kind) if document["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def workloads(documents: tuple[Document, ...]) -> list[Document]:
    return of_kind(documents, "Deployment", "StatefulSet", "Job")


def pod_of(workload: Document) -> Document:
    return workload["spec"]["template"]["spec"]


def labels_of(workload: Document) -> dict[str, str]:
    return workload["spec"]["template"]["metadata"]["labels"]


def containers(pod: Document) -> list[Document]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def matches(selector: Document, labels: dict[str, str]) -> bool:
    """Whether a label selector takes these labels (of its expressions, those that k8s/ uses)."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] in {"In", "Exists"}, expression
        if expression["key"] not in labels:
            return False
        if expression["operator"] == "In" and labels[expression["key"]] not in expression["values"]:
            return False
    return True


def environment(documents: tuple[Document, ...], container: Document) -> dict[str, str]:
    """The variables that a container gets, secrets left out: ConfigMaps read, `$(NAME)` replaced."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            found |= named(documents, "ConfigMap", source["configMapRef"]["name"])["data"]
    for entry in container.get("env", []):
        reference = entry.get("valueFrom", {}).get("configMapKeyRef")
        if reference:
            found[entry["name"]] = named(documents, "ConfigMap", reference["name"])["data"][reference["key"]]
        elif "value" in entry:
            found[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], entry["value"])
    return found


def secret_keys() -> dict[str, set[str]]:
    """The secrets that docs/kubernetes.md has the user make, with their keys."""
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    found = {}
    for name, options in re.findall(r"create secret generic (\S+)((?:.*\\\n)*.*\n)", text):
        found[name] = set(re.findall(r"--from-literal=(\w+)=", options))
    return found


def job_template() -> Document:
    return json.loads(TEMPLATE.read_text(encoding="utf-8"))


def deployments(folder: str) -> list[Document]:
    """What the worker of an overlay deploys."""
    own = K8S / folder / "prefect.yaml"
    return yaml.safe_load((own if own.exists() else BASE / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]


def each_container(documents: tuple[Document, ...]) -> Iterator[tuple[str, Document]]:
    for workload in workloads(documents):
        for container in containers(pod_of(workload)):
            yield f"{workload['metadata']['name']}/{container['name']}", container


def check_hardened(pod: Document) -> None:
    """Pod Security `restricted`, and what it leaves open: a read-only root, no token, no variables of services."""
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["enableServiceLinks"] is False
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["runAsGroup"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(pod):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert set(own) == {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"}
        assert not any("hostPort" in port for port in container.get("ports", []))
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]] or container["name"] == "postgres"


def check_references(documents: tuple[Document, ...], pod: Document, claims: set[str]) -> None:
    """Everything that a pod names is there: service account, volumes, ConfigMaps and their keys, secrets, claims."""
    named(documents, "ServiceAccount", pod["serviceAccountName"])
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    mounted = {mount["name"] for container in containers(pod) for mount in container["volumeMounts"]}
    assert mounted == set(volumes) | claims
    for volume in volumes.values():
        if "configMap" in volume:
            named(documents, "ConfigMap", volume["configMap"]["name"])
        elif "persistentVolumeClaim" in volume:
            named(documents, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        else:
            assert volume["emptyDir"]["sizeLimit"]
    for container in containers(pod):
        environment(documents, container)
        check_secrets(container)


def check_secrets(container: Document) -> None:
    known = secret_keys()
    for source in container.get("envFrom", []):
        if "secretRef" in source:
            assert source["secretRef"]["name"] in known
    for entry in container.get("env", []):
        reference = entry.get("valueFrom", {}).get("secretKeyRef")
        if reference:
            assert reference["key"] in known[reference["name"]]
