"""What a run's pods and events say about it, as Kubernetes writes them (JSON): pure, so that it is tested as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laptime.errors import shorten

Object = dict[str, Any]

# Reasons for which a container does not start, and what helps; others pass by themselves.
_NO_START = {
    "ImagePullBackOff": "check LAPTIME_KUBERNETES_IMAGE and the pull secret of the service account",
    "ErrImageNeverPull": "bring the image to the nodes, or set LAPTIME_KUBERNETES_PULL_POLICY=IfNotPresent",
    "InvalidImageName": "correct LAPTIME_KUBERNETES_IMAGE",
    "CreateContainerConfigError": "make the secret or the claim that is named",
}
_OUT_OF_MEMORY = "ran out of memory (OOMKilled): raise LAPTIME_KUBERNETES_MEMORY or make the batch smaller"


def started(pods: Sequence[Object]) -> int:
    """How many pods have got so far as to run."""
    return sum(_phase(pod) not in ("Pending", "Unknown", "") for pod in pods)


def running(pods: Sequence[Object]) -> int:
    """How many pods train, or have done so to their end."""
    return sum(_phase(pod) in ("Running", "Succeeded") for pod in pods)


def refusal(pods: Sequence[Object], events: Sequence[Object]) -> str | None:
    """Why the run can't start, where waiting does not help: the image can't be had, or pods are not allowed."""
    for pod in pods:
        for status in _containers(pod):
            waiting = status.get("state", {}).get("waiting") or {}
            remedy = _NO_START.get(str(waiting.get("reason")))
            if remedy:
                said = f"{waiting.get('reason')}: {waiting.get('message', '')}"
                return f"pod {_name(pod)} can't start with image {status.get('image')} ({_short(said)}): {remedy}."
    if pods:
        return None
    created = next((e for e in events if e.get("reason") == "FailedCreate"), None)
    if created is None:
        return None
    said = str(created.get("message", ""))
    remedy = "ask for less, or for a larger quota" if "quota" in said else "give what is missing"
    return f"Kubernetes makes no pods for the run ({_short(said)}): {remedy}."


def delay(pods: Sequence[Object]) -> str | None:
    """Why pods still wait, in the scheduler's own words."""
    for pod in pods:
        for condition in pod.get("status", {}).get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"{condition.get('reason', 'Unschedulable')}: {_short(str(condition.get('message', '')))}"
    return None


def deaths(pods: Sequence[Object]) -> list[str]:
    """How pods ended that did not end well, a sentence's part each."""
    found = []
    for pod in pods:
        status = pod.get("status", {})
        if status.get("reason") == "Evicted":
            found.append(f"pod {_name(pod)} was evicted ({_short(str(status.get('message', '')))})")
        for container in _containers(pod):
            ended = container.get("state", {}).get("terminated") or {}
            if ended.get("reason") == "OOMKilled":
                found.append(f"pod {_name(pod)} {_OUT_OF_MEMORY}")
            elif ended.get("exitCode"):
                found.append(f"pod {_name(pod)} ended with exit code {ended['exitCode']}")
    return found


def verdict(job: Object) -> str | None:
    """`Complete` or `Failed` with its reason, once the Job has come to an end; None before."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            reason = condition.get("reason", "")
            return f"{condition['type']} {reason}".strip()
    return None


def _containers(pod: Object) -> list[Object]:
    return pod.get("status", {}).get("containerStatuses") or []


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _name(pod: Object) -> str:
    return str(pod.get("metadata", {}).get("name", "?"))


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), 300)
