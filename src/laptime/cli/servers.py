"""The servers that `laptime up` and `laptime ui` start: their commands and environments, their start and their end."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from laptime.errors import RunError, UsageError, shorten
from laptime.host.processes import end_tree, kept_command, plain_path
from laptime.places import Places

HOST = "127.0.0.1"
_LOOK_EVERY_S = 0.2


@dataclass
class Server:
    """A program that runs below a keeper, with its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def require_alive(self) -> None:
        """Raises RunError with its last words when it has ended."""
        if self.process.poll() is not None:
            raise RunError(f"{self.name} ended by itself ({_last_words(self.log)}): see {self.log}.")


@dataclass
class Stack:
    """What was started, in order."""

    places: Places
    environment: Mapping[str, str]
    servers: list[Server] = field(default_factory=list)

    def start(self, name: str, module: str, arguments: Sequence[str]) -> Server:
        """Starts `python -m module` below a keeper, in a session of its own: Ctrl-C reaches only this process."""
        log = self.places.home / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = kept_command(sys.executable, *plain_path(), "-m", module, *arguments)
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                start_new_session=True,
            )
        server = Server(name, process, log)
        self.servers.append(server)
        return server

    def wait_for(self, server: Server, address: str, timeout_s: float = 90.0) -> None:
        """Waits until an address answers; raises RunError when the server ends or takes too long."""
        until = time.monotonic() + timeout_s
        while not answers(address):
            server.require_alive()
            if time.monotonic() > until:
                raise RunError(f"{server.name} did not answer at {address} within {timeout_s:g} s: see {server.log}.")
            time.sleep(_LOOK_EVERY_S)

    def run(self, module: str, arguments: Sequence[str], folder: Path) -> None:
        """Runs `python -m module` to its end; raises RunError with its last words when it fails."""
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=dict(self.environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            words = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise RunError(
                f"{module} {' '.join(arguments[:2])} failed ({shorten(words[-1] if words else 'no output', 200)})."
            )

    def watch(self) -> None:
        """Waits until a server ends, which raises RunError."""
        while True:
            for server in self.servers:
                server.require_alive()
            time.sleep(_LOOK_EVERY_S)

    def end(self) -> None:
        """Ends everything that was started: the last first, so that a worker can still tell its server."""
        if self.servers:
            _end(self.servers[-1])
        with ThreadPoolExecutor() as pool:
            list(pool.map(_end, self.servers[:-1]))


def _end(server: Server) -> None:
    end_tree(server.process.pid, grace_s=1.5)
    server.process.wait()


@contextmanager
def only_one(places: Places) -> Iterator[None]:
    """Holds the home's lock for `laptime up`: two would share a database and a pool, and take each other's flow runs.

    Raises:
        UsageError: another one holds it.
    """
    places.home.mkdir(parents=True, exist_ok=True)
    with (places.home / "up.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read(32).strip() or "unknown"
            raise UsageError(
                f"laptime up runs already with the stores in {places.home} (process {holder}): end it, or set "
                "LAPTIME_HOME to another folder."
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextmanager
def stack(places: Places, environment: Mapping[str, str]) -> Iterator[Stack]:
    """Holds servers and ends them on the way out, whatever the way is: Ctrl-C, SIGTERM, an error."""
    before = signal.signal(signal.SIGTERM, _stop)
    found = Stack(places, environment)
    try:
        yield found
    except KeyboardInterrupt:
        pass
    finally:
        # A second Ctrl-C or SIGTERM must not interrupt the ending.
        ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        found.end()
        signal.signal(signal.SIGINT, ignored)
        signal.signal(signal.SIGTERM, before)


def environment(places: Places, **more: str) -> dict[str, str]:
    """The environment of every program: the embedded stores by absolute path, and nothing that calls home."""
    return {
        **os.environ,
        "LAPTIME_HOME": str(places.home),
        "PREFECT_HOME": str(places.prefect),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Not among the server's arguments, which anybody on this machine can list: it may hold a password.
        "MLFLOW_BACKEND_STORE_URI": places.mlflow_uri,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **more,
    }


def mlflow_arguments(places: Places, port: int) -> list[str]:
    """Arguments of the MLflow server on the tracking store (`environment` names it): one worker, on loopback."""
    places.artifacts.mkdir(parents=True, exist_ok=True)
    return [
        "server",
        *("--artifacts-destination", places.artifacts.as_uri()),
        *("--host", HOST, "--port", str(port), "--workers", "1"),
    ]


def mlflow_page(address: str) -> str:
    """The page of MLflow's UI to begin at: it opens with its view for language models, in which an experiment's page
    looks empty. The UI keeps the view that an address has asked for.
    """
    return f"{address.rstrip('/')}/#/experiments?workflowType=machine_learning"


def require_free(port: int, option: str) -> None:
    """Raises UsageError where a port is in use."""
    with socket.socket() as probe:
        # As servers do it: a port that was let go of a moment ago is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(f"port {port} is in use on {HOST}: give another with {option} PORT.") from error


def answers(address: str) -> bool:
    """Whether an address on this machine answers with success."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _last_words(log: Path) -> str:
    lines = [x.strip() for x in log.read_text(encoding="utf-8", errors="replace").splitlines() if x.strip()]
    return shorten(lines[-1], 200) if lines else "without a word"
