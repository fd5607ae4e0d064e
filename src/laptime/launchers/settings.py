"""What launcher `kubernetes` is told by the environment: LAPTIME_KUBERNETES_* and LAPTIME_RUN_STORE."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field, ValidationError, field_validator

from laptime.errors import UsageError, shorten, unknown
from laptime.nodes import read_range
from laptime.spec import Frozen, RunSpec, explain

PREFIX, STORE = "LAPTIME_KUBERNETES_", "LAPTIME_RUN_STORE"
_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_NAMESPACE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
# Kubernetes itself gives pods variables for each service in sight, under the service's name.
_OF_SERVICES = re.compile(r"(.*_)?(PORT|SERVICE_HOST|SERVICE_PORT)(_.*)?")
# Where a pod has mounts of its own.
_TAKEN = ("/", "/tmp", "/dev/shm", "/var/lib/laptime")  # noqa: S108 - they are refused
# As registries and Kubernetes read it: a registry's address, a path in small letters, a tag, a digest.
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[\w.\[:\]-]+/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@[\w+.-]+:[0-9a-fA-F]{{32,}})?", re.ASCII
)
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"

Name = Annotated[str, Field(pattern=_NAME, max_length=63)]
Quantity = Annotated[str, Field(pattern=_QUANTITY)]


class Settings(Frozen):
    """Each field is LAPTIME_KUBERNETES_<NAME>; `store` is LAPTIME_RUN_STORE.

    Attributes:
        image: what the pods run; without it LAPTIME_IMAGE, the image that this process runs in.
        nodes: MIN:MAX pods that train together; one that is lost costs no run while MIN are left.
        gpus: of a pod, which has as many ranks; a pod without GPUs has one.
        pvc: claim that is mounted at /var/lib/laptime, for data; empty for a folder that goes with the pod.
        disk: room in that folder; a pod that takes more of its node's disk is evicted.
        s3_secret: secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN too); may be missing.
        s3_endpoint: where pods reach S3; without it AWS_ENDPOINT_URL of this process.
        restarts: how often lost ranks, or a lost pod, are started anew.
        last_call_s: how long further pods are waited for once the least number is there.
        pending_s: how long pods may wait for a place.
        store: an s3:// prefix, or a folder, which pods see under the same path through a claim.
        store_pvc: that claim.
    """

    namespace: Annotated[str, Field(pattern=_NAMESPACE, max_length=63)] = "laptime"
    image: Annotated[str, Field(min_length=1)]
    pull_policy: Annotated[str, Field(pattern="^(Always|IfNotPresent|Never)$")] = "IfNotPresent"
    nodes: str = "1:1"
    gpus: Annotated[int, Field(ge=0, le=16)] = 0
    cpu: Quantity = "2"
    memory: Quantity = "8Gi"
    shm: Quantity = "2Gi"
    pvc: Name | None = None
    disk: Quantity = "20Gi"
    service_account: Name = "laptime-trainer"
    s3_secret: Name = "laptime-s3"  # noqa: S105 - its name
    s3_endpoint: str | None = None
    restarts: Annotated[int, Field(ge=0, le=20)] = 3
    last_call_s: Annotated[int, Field(ge=1)] = 30
    pending_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    store: Annotated[str, Field(min_length=1)]
    store_pvc: Name | None = None

    @field_validator("nodes")
    @classmethod
    def _read(cls, value: str) -> str:
        low, high = read_range(value)
        return f"{low}:{high}"

    @field_validator("image")
    @classmethod
    def _name(cls, value: str) -> str:
        """What Kubernetes takes without a word, and its nodes refuse when the pods are there."""
        if not _IMAGE.fullmatch(value):
            raise ValueError("must be an image's name as registry/path:tag or …@sha256:…, the path in small letters")
        return value

    @property
    def node_range(self) -> tuple[int, int]:
        return read_range(self.nodes)

    @property
    def ranks_of_a_pod(self) -> int:
        return self.gpus or 1

    @property
    def ranks(self) -> int:
        """Ranks where all pods are there."""
        return self.node_range[1] * self.ranks_of_a_pod

    def pods_of(self, spec: RunSpec) -> tuple[int, int]:
        """Least and most pods of a run.

        Raises:
            UsageError: its ranks don't fill pods, or are more than the pods hold; or it needs GPUs that pods lack.
        """
        least, _ = self.node_range
        if spec.device == "cuda" and not self.gpus:
            raise UsageError(f"{spec.variant} trains on GPUs, but pods have none: set {PREFIX}GPUS.")
        pods, rest = divmod(spec.ranks, self.ranks_of_a_pod)
        if rest or spec.ranks > self.ranks:
            raise UsageError(
                f"{spec.variant} has {spec.ranks} ranks, but {PREFIX}NODES={self.nodes} and {PREFIX}GPUS={self.gpus} "
                f"make pods of {self.ranks_of_a_pod} and {self.ranks} in all: give a number of ranks that fills pods."
            )
        return min(least, pods), pods


def read_settings() -> Settings:
    """Reads the environment; raises UsageError for what is missing, is called differently or makes no sense."""
    if not _value(STORE):
        raise UsageError(
            f"{STORE} is not set, and a pod's spec and record go through it: set it to s3://bucket/prefix or to a "
            "folder that the pods see under the same path."
        )
    image = _value(f"{PREFIX}IMAGE") or _value("LAPTIME_IMAGE")
    if not image:
        raise UsageError(f"{PREFIX}IMAGE is not set: name the image that the pods run.")
    own: dict[str, str | None] = {**_own()}
    own.setdefault("s3_endpoint", _value("AWS_ENDPOINT_URL") or None)
    store = _value(STORE).rstrip("/") or "/"
    if not store.startswith("s3://"):
        _check_folder(store, bool(own.get("store_pvc")))
    try:
        return Settings.model_validate({**own, "image": image, "store": store})
    except ValidationError as error:
        raise UsageError(f"of the variables {PREFIX}*, {explain(error)}.") from error


def _value(name: str) -> str:
    """A variable without blanks and the line's end that come with it out of a file; empty where there is none."""
    return os.environ.get(name, "").strip()


def _own() -> dict[str, str]:
    """The fields that are set; raises UsageError for a variable that is none of them, which would go unheard."""
    found = {}
    known = {f"{PREFIX}{field.upper()}": field for field in Settings.model_fields if field != "store"}
    for name in sorted(os.environ):
        if name in known and _value(name):
            found[known[name]] = _value(name)
        elif name.startswith(PREFIX) and name not in known and not _OF_SERVICES.fullmatch(name.removeprefix(PREFIX)):
            raise unknown("variable", name, known)
    return found


def _check_folder(store: str, claimed: bool) -> None:
    """Refuses a run store that can't be mounted in pods; raises UsageError."""
    path = PurePosixPath(store)
    if not path.is_absolute() or ":" in store or ".." in path.parts or str(path) in _TAKEN:
        raise UsageError(
            f"{STORE}={shorten(store)!r} can't be mounted in pods: set it to an absolute path without : and .. that is "
            f"none of {', '.join(_TAKEN)}, or to s3://bucket/prefix."
        )
    if not claimed:
        raise UsageError(
            f"{STORE}={shorten(store)!r} is a folder, which pods see through a claim alone: name it by "
            f"{PREFIX}STORE_PVC, or take an s3:// prefix."
        )
