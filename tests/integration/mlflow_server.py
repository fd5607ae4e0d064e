"""A real MLflow server that can be stopped, killed and started again at the same address."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from ports import free_port

from laptime.cli.servers import HOST, answers
from laptime.host.processes import end_tree

_READY_S = 120.0


@dataclass
class MlflowServer:
    """A real server on SQLite."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Starts it and waits until it answers; raises RuntimeError where it does not."""
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(self.port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"),
            *("--artifacts-destination", str(self.folder / "artifacts")),
        ]
        log = self.folder / "log.txt"
        off = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, env={**os.environ, **off}, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        until = time.monotonic() + _READY_S
        while not answers(f"{self.uri}/health"):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the MLflow server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends it as a service manager does."""
        if self.process is not None:
            end_tree(self.process.pid)
            self.process.wait()
            self.process = None

    def kill(self) -> None:
        """Ends it without a word, all of its processes at once."""
        if self.process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in [*psutil.Process(self.process.pid).children(recursive=True), self.process]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def a_server(folder: Path) -> Iterator[MlflowServer]:
    """A server with its data in a folder, ended on the way out."""
    server = MlflowServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
