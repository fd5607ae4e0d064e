"""Launcher `kubernetes`: the ranks of a run in the pods of an Indexed Job; the only importer of kubernetes.

Spec and record go through the run store, so pods need no right in the cluster, and the launcher none on their logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laptime.catalogue import find_workload
from laptime.data.objects import Objects
from laptime.errors import DataError, LaptimeError, RunError, UsageError, shorten
from laptime.launchers.base import LOG, PROGRESS, RECORD, SPEC, Hooks, salvaged
from laptime.launchers.handover import bring_back, failures, hand_out
from laptime.launchers.manifest import job, name_of, service
from laptime.launchers.pods import Object, deaths, delay, refusal, started, verdict
from laptime.launchers.settings import Settings, read_settings
from laptime.records import PARTIAL, RunRecord, read_record, write_json, write_record
from laptime.spec import RunSpec

_LOOK_EVERY_S = 1.0
_AWAY_S = 60.0
_REQUEST_S = 15.0
# After the Job's end, how long its record may still be on its way through the store.
_LATE_S = 5.0


def launch(spec: RunSpec, folder: Path, hooks: Hooks) -> RunRecord:
    """Runs a spec in pods and brings its record back; Job and Service are deleted in every end.

    Raises:
        UsageError: a setting is missing or makes no sense, or the client library is not installed.
        RunError: the cluster does not answer or refuses.
        DataError: the run store can't be written.
    """
    settings = read_settings()
    pods = settings.pods_of(spec)
    _refuse_own_files(spec)
    cluster = Cluster(settings.namespace)
    run = f"{_slug(spec.variant)}-{secrets.token_hex(4)}"
    cluster.pods(run)  # whether it answers, before the data is sent
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (RECORD, PARTIAL, LOG, PROGRESS):
        (folder / stale).unlink(missing_ok=True)
    write_json(folder / SPEC, spec)
    place = hand_out(spec, settings.store, run)
    with cluster.running(settings, run, pods, spec.timeout_s, hooks.say):
        hooks.say(f"{pods[1]} pods of Job {name_of(run)} in namespace {settings.namespace}, files at {place.url}")
        why = Watch(cluster, settings, run, place, hooks).follow(spec.timeout_s)
        ended: list[str] = []
        with contextlib.suppress(RunError):  # it may be the cluster that is away
            ended = deaths(cluster.pods(run)) if why else []
    record = _record(spec, folder, place, (pods[1], why, ended))
    write_record(folder / RECORD, record)
    return record


def _slug(variant: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", variant.lower()).strip("-")[:30].strip("-") or "run"


def _refuse_own_files(spec: RunSpec) -> None:
    """Refuses what stands on this machine alone; raises UsageError."""
    named = find_workload(spec.workload).weights
    if spec.weights not in named:
        raise UsageError(
            f"--weights {shorten(spec.weights)!r} is a file of this machine, which pods don't see: put it into "
            f"the image and train with the launcher process there, or give {' or '.join(named)}."
        )
    if spec.checkpoints and not spec.checkpoints.startswith("s3://"):
        raise UsageError(
            f"--checkpoints {shorten(spec.checkpoints)!r} is a folder of this machine, which pods don't see: give an "
            "s3:// place, or leave it out for one in the run store."
        )


def _record(spec: RunSpec, folder: Path, place: Objects, outcome: tuple[int, str | None, list[str]]) -> RunRecord:
    """What the pods left, or why they left nothing."""
    pods, why, ended = outcome
    if _patiently(lambda: bring_back(place, folder)):
        return read_record(folder / RECORD).model_copy(update={"spec": spec})
    told: list[str] = []
    with contextlib.suppress(DataError):
        told = failures(place, pods)
    said = [why or "the Job ended, but no record came back.", *ended, *told]
    return salvaged(spec, folder, "; ".join(part.rstrip(".") for part in said) + f" (files at {place.url}).")


def _patiently(ask: Callable[[], bool]) -> bool:
    """Asks the store again while it is away: what it holds may have taken hours; False where it stays away."""
    until = time.monotonic() + _AWAY_S
    while True:
        try:
            return ask()
        except DataError:
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_EVERY_S)


class Cluster:
    """The few calls that a run needs, in one namespace."""

    def __init__(self, namespace: str) -> None:
        """Takes the configuration of the pod that this is, else that of kubectl; raises UsageError without either."""
        try:
            from kubernetes import client, config
            from urllib3.exceptions import HTTPError
        except ImportError as error:
            raise UsageError(
                "launcher kubernetes needs the client library, which is not installed: install laptime[kubernetes]."
            ) from error
        try:
            try:
                config.load_incluster_config()
            except config.ConfigException:
                config.load_kube_config(os.environ.get("KUBECONFIG"))  # read when asked, not at import
        except (config.ConfigException, OSError) as error:
            raise UsageError(
                f"there is no access to a cluster ({shorten(str(error))}): set KUBECONFIG, or run in a pod whose "
                "service account has the role laptime-launcher."
            ) from error
        self.namespace = namespace
        self._core, self._batch = client.CoreV1Api(), client.BatchV1Api()
        self._refused: type[Any] = client.ApiException
        self._away = (HTTPError, OSError, ValueError)  # the client lets urllib3's through; no JSON is no answer

    def pods(self, run: str) -> list[Object]:
        """The pods of a run."""
        found = self._call(self._core.list_namespaced_pod, "list pods", label_selector=f"laptime.run={run}")
        return list(found["items"])

    def events(self, run: str) -> list[Object]:
        """What happened to its Job."""
        chosen = f"involvedObject.name={name_of(run)}"
        found = self._call(self._core.list_namespaced_event, "list events", field_selector=chosen)
        return list(found["items"])

    def job(self, run: str) -> Object:
        """The Job with its state."""
        return self._call(self._batch.read_namespaced_job, "get jobs", name=name_of(run))

    @contextlib.contextmanager
    def running(
        self, settings: Settings, run: str, pods: tuple[int, int], timeout_s: float, say: Callable[[str], None]
    ) -> Iterator[None]:
        """Makes Service and Job, and deletes them on the way out, whatever the way is; their pods go with the Job."""
        try:
            self._call(self._core.create_namespaced_service, "create services", body=service(settings, run))
            self._call(self._batch.create_namespaced_job, "create jobs", body=job(settings, run, pods, timeout_s))
            yield
        finally:
            removals: tuple[tuple[Callable[..., Any], str, dict[str, str]], ...] = (
                (self._batch.delete_namespaced_job, "delete jobs", {"propagation_policy": "Background"}),
                (self._core.delete_namespaced_service, "delete services", {}),
            )
            for call, what, more in removals:
                try:
                    self._call(call, what, name=name_of(run), **more)
                except LaptimeError as error:
                    say(f"{name_of(run)} may be left: {error}")

    def _call(self, call: Callable[..., Any], what: str, **given: Any) -> Object:
        """One call, answered as JSON; what was to be deleted and is gone is no error.

        Raises:
            RunError: the cluster does not answer, or refuses.
        """
        try:
            answer = call(namespace=self.namespace, _preload_content=False, _request_timeout=_REQUEST_S, **given)
            body: Object = json.loads(answer.data)
        except self._refused as error:
            if error.status == 404 and what.startswith("delete"):
                return {}
            if error.status == 429 or error.status >= 500:  # a control plane that is being rolled says these
                raise AwayError(f"the cluster can't {what} now ({error.status} {error.reason}): try again.") from error
            raise RunError(self._explained(what, error)) from error
        except self._away as error:
            raise AwayError(f"the cluster does not answer ({shorten(str(error), 200)}): check KUBECONFIG.") from error
        return body

    def _explained(self, what: str, error: Any) -> str:
        try:
            said = str(json.loads(error.body)["message"])
        except (TypeError, ValueError, KeyError):
            said = f"{error.status} {error.reason}"
        said = shorten(" ".join(said.split()), 300)
        if error.status == 401:
            return f"the cluster does not know these credentials ({said}): log in again or renew the token."
        if error.status == 403 and "quota" in said:
            return f"namespace {self.namespace} has no quota left ({said}): ask for less, or for a larger quota."
        if error.status == 403:
            return f"not allowed to {what} in namespace {self.namespace} ({said}): bind the role laptime-launcher."
        if error.status == 404:
            return (
                f"namespace {self.namespace} or what is in it does not exist ({said}): create it, or set "
                "LAPTIME_KUBERNETES_NAMESPACE."
            )
        return f"the cluster refuses to {what} ({said})."


class AwayError(RunError):
    """The cluster does not answer; it may in a moment."""


@dataclass
class Watch:
    """Looks after a run until it has left a record or can't any more."""

    cluster: Cluster
    settings: Settings
    run: str
    place: Objects
    hooks: Hooks
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def follow(self, timeout_s: float) -> str | None:
        """Passes on what the ranks say, until a record is there; else returns why none will come.

        Pods that wait for a place don't use up the time-out.
        """
        self._told = {PROGRESS: 0, LOG: 0}
        self._begun = self._answered = self.clock()
        self._ready: float | None = None
        while True:
            try:
                arrived = self.place.read(RECORD) is not None
                self._pass_on()
                if arrived:
                    return None
                why = self._trouble(timeout_s)
                self._answered = self.clock()
            except (AwayError, DataError) as error:  # of the cluster, of the store
                why = str(error) if self.clock() - self._answered > _AWAY_S else None
            except RunError as error:  # a refusal ends this run, not the ladder around it
                why = str(error)
            if why is not None:
                return why
            self.sleep(_LOOK_EVERY_S)

    def _trouble(self, timeout_s: float) -> str | None:
        """Why there will be no record; None while there may be one."""
        pods = self.cluster.pods(self.run)
        why = refusal(pods, () if pods else self.cluster.events(self.run))
        if why is not None:
            return why
        now = self.clock()
        if self._ready is None and started(pods):
            self._ready = now
        if self._ready is None and now - self._begun > self.settings.pending_s:
            return self._unscheduled(pods)
        if self._ready is not None and now - self._ready > timeout_s:
            return f"ran past its time-out of {timeout_s:g} s and was ended: raise --timeout or limit the data"
        end = verdict(self.cluster.job(self.run))
        if end is None:
            return None
        self.sleep(_LATE_S)
        return None if self.place.read(RECORD) is not None else f"the Job ended ({end}) without a record"

    def _unscheduled(self, pods: list[Object]) -> str:
        waited = f"no pod of the run started within {self.settings.pending_s:g} s"
        reason = delay(pods) or "no reason was given"
        return f"{waited} ({reason}): ask for less by LAPTIME_KUBERNETES_*, or add nodes"

    def _pass_on(self) -> None:
        for name in (PROGRESS, LOG):
            text = self.place.read(name) or b""
            end = text.rfind(b"\n") + 1
            begin = self._told[name]
            if begin > end or text[begin - 1 : begin] not in (b"", b"\n"):
                begin = 0  # another pod's, after a restart
            fresh = text[begin:end].decode(errors="replace").splitlines()
            self._told[name] = end
            for line in fresh:
                if name == LOG:
                    self.hooks.on_line(line)
                else:
                    self.hooks.on_event(json.loads(line))
