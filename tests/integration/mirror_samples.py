"""Small data on a real S3 server and behind a web server, and looks at what stands where."""

from __future__ import annotations

import os
import uuid
from contextlib import AbstractContextManager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import boto3
import numpy as np
import pytest
from PIL import Image
from s3_server import S3Server
from tests.serving import Quiet, serving

from laptime.data import mirror
from laptime.data.net import Budget


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for i in range(5):
                Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "images"


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    """One bucket for all: the server keeps some of its few volumes for each."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3_server.make_bucket(name)
    return name


@pytest.fixture
def s3(s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh prefix, with the variables that lead to it."""
    for name in [n for n in os.environ if n.startswith(("AWS_", "LAPTIME_DATA"))]:
        if name != "AWS_CA_BUNDLE":
            monkeypatch.delenv(name)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    # What a busy machine's server may take to answer; that nobody does, tests are told at once, by a closed port.
    monkeypatch.setattr(Budget.__init__, "__defaults__", (60.0,))
    monkeypatch.setattr(mirror, "SHARE_S", 60.0)
    return f"s3://{bucket}/{uuid.uuid4().hex[:12]}/prefix"


class Silent(Quiet, SimpleHTTPRequestHandler):
    """Serves a folder."""


def web(folder: Path, handler: type[Silent] = Silent) -> AbstractContextManager[str]:
    return serving(partial(handler, directory=str(folder)))


def objects(url: str) -> dict[str, bytes]:
    """What stands under an s3:// address, by name below it."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    client = boto3.Session().client("s3")
    keys = [o["Key"] for o in client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]
    return {k.removeprefix(f"{prefix}/"): client.get_object(Bucket=bucket, Key=k)["Body"].read() for k in keys}


def put(url: str, name: str, body: bytes) -> None:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    boto3.Session().client("s3").put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=body)


def clean(home: Path) -> bool:
    root = home / "data"
    return not root.exists() or all(p.name == "index" or len(p.name) == 64 for p in root.iterdir())
