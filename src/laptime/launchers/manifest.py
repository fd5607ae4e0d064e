"""The Job of one run and its Service, as Kubernetes takes them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from laptime.launchers.settings import Settings
from laptime.nodes import RENDEZVOUS_PORT, Nodes

Manifest = dict[str, Any]

CONTAINER = "trainer"
HOME = "/var/lib/laptime"
_USER = 10001
_MARGIN_S = 600
_TMP = "16Gi"
_ADDRESS = "LAPTIME_POD_IP"
_GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
# What a pod is told of this process's own environment.
_PASSED = ("LAPTIME_COMMIT", "AWS_DEFAULT_REGION", "AWS_REGION")


def name_of(run: str) -> str:
    """The name of a run's Job and Service."""
    return f"laptime-{run}"


def command(settings: Settings, run: str, pods: tuple[int, int]) -> list[str]:
    """What each pod runs, by its image's entry point; its index comes from Kubernetes, in JOB_COMPLETION_INDEX."""
    endpoint = f"{name_of(run)}-0.{name_of(run)}:{RENDEZVOUS_PORT}"
    nodes = Nodes(*pods, endpoint=endpoint, run=run, address=f"$({_ADDRESS})")
    nodes = replace(nodes, restarts=settings.restarts, last_call_s=settings.last_call_s)
    words = nodes.words()
    place = words.index("--node")
    del words[place : place + 2]
    own = ["--ranks", str(settings.ranks_of_a_pod), *words]
    return ["python", "-m", "laptime.pod", settings.store, run, *own]


def service(settings: Settings, run: str) -> Manifest:
    """A headless Service: it gives each pod a name, also before it is ready, so that the pods can meet."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name_of(run), "namespace": settings.namespace, "labels": _labels(run)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"laptime.run": run},
            "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT, "targetPort": RENDEZVOUS_PORT}],
        },
    }


def job(settings: Settings, run: str, pods: tuple[int, int], timeout_s: float) -> Manifest:
    """An Indexed Job: one pod a node, each with an index of its own that a replacement takes over.

    A pod that is evicted is replaced and counts as no failure; one whose command makes no sense (exit code 2) ends all.
    The deadline is a last resort behind the launcher's own time-out, should the launcher be gone.
    """
    least, most = pods
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(run), "namespace": settings.namespace, "labels": _labels(run)},
        "spec": {
            "completionMode": "Indexed",
            "completions": most,
            "parallelism": most,
            "backoffLimitPerIndex": settings.restarts,
            "maxFailedIndexes": most - least,
            "activeDeadlineSeconds": int(timeout_s + settings.pending_s + _MARGIN_S),
            "ttlSecondsAfterFinished": 3600,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [2]},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"metadata": {"labels": _labels(run)}, "spec": _pod(settings, run, pods)},
        },
    }


def _labels(run: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": CONTAINER, "app.kubernetes.io/part-of": "laptime", "laptime.run": run}


def _pod(settings: Settings, run: str, pods: tuple[int, int]) -> Manifest:
    own = {"emptyDir": {"sizeLimit": settings.disk}}
    claim = {"persistentVolumeClaim": {"claimName": settings.pvc}} if settings.pvc else own
    store = {"name": "store", "persistentVolumeClaim": {"claimName": settings.store_pvc}}
    return {
        "restartPolicy": "Never",
        "subdomain": name_of(run),
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        # Nodes with GPUs are often kept from all that asks for none.
        **({"tolerations": [_GPU_TAINT]} if settings.gpus else {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, run, pods)],
        "volumes": [
            {"name": "data", **claim},
            {"name": "tmp", "emptyDir": {"sizeLimit": _TMP}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shm}},
            *([store] if settings.store_pvc else []),
        ],
    }


def _container(settings: Settings, run: str, pods: tuple[int, int]) -> Manifest:
    limits = {"cpu": settings.cpu, "memory": settings.memory}
    if settings.gpus:
        limits["nvidia.com/gpu"] = str(settings.gpus)
    passed = [{"name": name, "value": os.environ[name]} for name in _PASSED if os.environ.get(name)]
    if settings.s3_endpoint:
        passed.append({"name": "AWS_ENDPOINT_URL", "value": settings.s3_endpoint})
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    secret = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": settings.s3_secret, "key": key, "optional": True}}}
        for key in keys
    ]
    return {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": command(settings, run, pods),
        "env": [
            {"name": _ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LAPTIME_HOME", "value": HOME},
            {"name": "LAPTIME_IMAGE", "value": settings.image},
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - a folder of the pod's own
            *passed,
            *secret,
        ],
        "ports": [{"name": "rendezvous", "containerPort": RENDEZVOUS_PORT}],
        "resources": {"requests": dict(limits), "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": HOME},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - as above
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - as above
            *([{"name": "store", "mountPath": settings.store}] if settings.store_pvc else []),
        ],
    }
