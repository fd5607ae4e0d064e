"""The few calls of Kubernetes' API that launcher `kubernetes` makes, on loopback, with the documented answers.

A thread plays the cluster: it runs the command of a Job's pod for real, with the environment that the manifest gives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from ports import free_port
from tests.serving import Quiet, serving


class Cluster:
    """What there is in it, and how it behaves.

    Attributes:
        objects: by path, what was created and not deleted.
        calls: method and path of each request.
        refuse: status and message by method and end of path.
        busy: how often it answers 503, by method and end of path; what it was asked to make is made all the same.
        status: of each pod, where none is run.
        events: of the Job.
        ended: the Job's condition, where no pod is run.
    """

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, dict] = {}
        self.calls: list[tuple[str, str]] = []
        self.refuse: dict[tuple[str, str], tuple[int, str]] = {}
        self.busy: dict[tuple[str, str], int] = {}
        self.status: dict | None = None
        self.events: list[dict] = []
        self.ended: dict | None = None
        self.made: dict[str, dict] = {}
        self._folder, self._ran = folder, list[subprocess.Popen]()

    def answer(self, method: str, path: str, body: dict | None) -> tuple[int, dict]:
        self.calls.append((method, path))
        answer = self._unwilling(method, path, body)
        if answer is not None:
            return answer
        if method == "POST":
            name = f"{path}/{body['metadata']['name']}"
            if name in self.objects:
                return 409, {"kind": "Status", "reason": "AlreadyExists", "message": f"{name} exists", "code": 409}
            self.objects[name] = self.made[body["kind"]] = body
            if body["kind"] == "Job" and self.status is None:
                self._run(body)
            return 201, body
        if path.endswith("/pods"):
            return 200, {"kind": "PodList", "items": self._pods()}
        if path.endswith("/events"):
            return 200, {"kind": "EventList", "items": self.events}
        found = self.objects.pop(path, None) if method == "DELETE" else self.objects.get(path)
        if found is None:
            return 404, {"kind": "Status", "message": f"{path} not found", "code": 404}
        return 200, {**found, "status": self._job_status()}

    def _unwilling(self, method: str, path: str, body: dict | None) -> tuple[int, dict] | None:
        """What it says where it refuses or is busy."""
        for (refused, end), (code, said) in self.refuse.items():
            if method == refused and path.endswith(end):
                return code, {"kind": "Status", "status": "Failure", "message": said, "code": code}
        for (busy, end), times in self.busy.items():
            if method == busy and path.endswith(end) and times:
                self.busy[busy, end] = times - 1
                if method == "POST":
                    self.objects[f"{path}/{body['metadata']['name']}"] = body
                return 503, {"kind": "Status", "message": "the server is starting", "code": 503}
        return None

    def _pods(self) -> list[dict]:
        if not any("/jobs/" in path for path in self.objects):
            return []
        if self.status is not None:
            return [{"metadata": {"name": "laptime-x-0-abcde"}, "status": self.status}] if self.status else []
        codes = [process.poll() for process in self._ran]
        phases = {None: "Running", 0: "Succeeded"}
        return [
            {"metadata": {"name": f"p-{i}"}, "status": {"phase": phases.get(c, "Failed")}} for i, c in enumerate(codes)
        ]

    def _job_status(self) -> dict:
        if self.ended is not None:
            return {"conditions": [{"status": "True", **self.ended}]}
        codes = [process.poll() for process in self._ran]
        if not codes or None in codes:
            return {}
        kind = "Failed" if any(codes) else "Complete"
        return {"conditions": [{"type": kind, "status": "True"}]}

    def _run(self, job: dict) -> None:
        (box,) = job["spec"]["template"]["spec"]["containers"]
        words = [sys.executable, *box["args"][1:]]
        words[words.index("--endpoint") + 1] = f"127.0.0.1:{free_port()}"
        own = {e["name"]: e["value"] for e in box["env"] if "value" in e}
        for index in range(job["spec"]["completions"]):
            more = {"LAPTIME_HOME": str(self._folder / f"home-{index}"), "JOB_COMPLETION_INDEX": str(index)}
            addressed = [w.replace("$(LAPTIME_POD_IP)", "127.0.0.1") for w in words]
            with (self._folder / f"pod-{index}.txt").open("w") as log:
                environment = {**os.environ, **own, **more, "OMP_NUM_THREADS": "1"}
                self._ran.append(subprocess.Popen(addressed, env=environment, stdout=log, stderr=log))

    def close(self) -> None:
        """Ends what still runs."""
        for process in self._ran:
            process.terminate()
            process.wait()


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Serves a cluster and writes the kubeconfig that leads to it, `folder/kubeconfig`."""
    cluster = Cluster(folder)

    class Handler(Quiet):
        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            parts = urlsplit(self.path)
            assert parse_qs(parts.query) is not None
            code, body = cluster.answer(self.command, parts.path, json.loads(text) if text else None)
            self.give(json.dumps(body).encode(), code, kind="application/json")

        do_GET = do_POST = do_DELETE = _reply

    with serving(Handler) as address:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": address}}],
            "users": [{"name": "test", "user": {"token": "none"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        try:
            yield cluster
        finally:
            cluster.close()
