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
from functools import partial
from pathlib import Path
from typing import Any

from laptime.catalogue import find_workload
from laptime.data.objects import Objects
from laptime.errors import DataError, LaptimeError, RunError, UsageError, shorten
from laptime.host.processes import undisturbed
from laptime.launchers.base import RECORD, Hooks, prepare, salvaged
from laptime.launchers.handover import bring_back, failures, hand_out
from laptime.launchers.manifest import job, name_of, service
from laptime.launchers.pods import Object, deaths
from laptime.launchers.settings import Settings, read_settings
from laptime.launchers.watch import AWAY_S, LOOK_EVERY_S, AwayError, Watch
from laptime.records import SYSTEM, RunRecord, read_record, write_record
from laptime.spec import RunSpec

_REQUEST_S = 15.0


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
    _insistently(lambda: cluster.pods(run), hooks.say)  # whether it answers, before the data is sent
    prepare(spec, folder, SYSTEM)
    place = hand_out(spec, settings.store, run)
    with cluster.running(settings, run, pods, spec.timeout_s, hooks.say):
        hooks.say(f"{pods[1]} pods of Job {name_of(run)} in namespace {settings.namespace}, files at {place.url}")
        why = Watch(cluster, settings, run, place, hooks, pods[0]).follow(spec.timeout_s)
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
    until = time.monotonic() + AWAY_S
    while True:
        try:
            return ask()
        except DataError:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_EVERY_S)


def _insistently(call: Callable[[], object], say: Callable[[str], None]) -> None:
    """Calls again while the cluster is away: a control plane that is being rolled refuses for a while; or raises."""
    until, told = time.monotonic() + AWAY_S, False
    while True:
        try:
            call()
        except AwayError as error:
            if time.monotonic() > until:
                raise
            if not told:
                say(f"{error} Asking again for {AWAY_S:.0f} s.")
            told = True
            time.sleep(LOOK_EVERY_S)
        else:
            return


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
        makings: tuple[tuple[Callable[..., Any], str, Object], ...] = (
            (self._core.create_namespaced_service, "create services", service(settings, run)),
            (self._batch.create_namespaced_job, "create jobs", job(settings, run, pods, timeout_s)),
        )
        removals: tuple[tuple[Callable[..., Any], str, dict[str, str]], ...] = (
            (self._batch.delete_namespaced_job, "delete jobs", {"propagation_policy": "Background"}),
            (self._core.delete_namespaced_service, "delete services", {}),
        )
        try:
            for call, what, body in makings:
                _insistently(partial(self._call, call, what, body=body), say)
            yield
        finally:
            with undisturbed():
                for call, what, more in removals:
                    try:
                        _insistently(partial(self._call, call, what, name=name_of(run), **more), say)
                    except LaptimeError as error:
                        say(f"{name_of(run)} may be left: {error}")

    def _call(self, call: Callable[..., Any], what: str, **given: Any) -> Object:
        """One call, answered as JSON; no error is what was to be deleted and is gone, or to be made and is there.

        Raises:
            RunError: the cluster does not answer, or refuses.
        """
        try:
            answer = call(namespace=self.namespace, _preload_content=False, _request_timeout=_REQUEST_S, **given)
            body: Object = json.loads(answer.data)
        except self._refused as error:
            there = error.status == 409 and "AlreadyExists" in str(error.body)  # names are a run's own
            if (error.status == 404 and what.startswith("delete")) or (there and what.startswith("create")):
                return {}
            if error.status in (409, 429) or error.status >= 500:  # a control plane that is being rolled says these
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
