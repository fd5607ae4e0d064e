"""Large objects on a real S3 server: killed, cut off and written by two at once; what was moved is not moved again."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from mirror_samples import bucket
from proxy import Proxy, a_proxy
from s3_server import S3Server
from tests.serving import Quiet, serving

from laptime.data.s3 import S3Place
from laptime.data.s3.parts import THREAD_NAME
from laptime.data.s3.upload import abort_stale
from laptime.errors import DataError, UnreachableError

__all__ = ["bucket"]

MIB = 2**20
PART = 5 * MIB
SIZE = 9 * PART - 1000
SLACK = MIB


@pytest.fixture
def line(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The line to the server that the variables lead to."""
    for name in [n for n in os.environ if n.startswith("AWS_") and n != "AWS_CA_BUNDLE"]:
        monkeypatch.delenv(name)
    with a_proxy(s3_server.endpoint) as (proxy, address):
        for name, value in s3_server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
        yield proxy


@pytest.fixture
def place(line: Proxy, bucket: str) -> S3Place:
    return S3Place(f"s3://{bucket}/{uuid.uuid4().hex[:12]}", part=PART)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("large") / "large.npy"
    path.write_bytes(os.urandom(SIZE))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def quiet(count: int) -> None:
    pass


def client(s3_server: S3Server) -> Any:
    keys = {"aws_access_key_id": s3_server.access_key, "aws_secret_access_key": s3_server.secret_key}
    return boto3.Session().client("s3", endpoint_url=s3_server.endpoint, region_name="us-east-1", **keys)


def unfinished(s3: Any, place: S3Place) -> list[tuple[str, str]]:
    bucket, _, prefix = place.url.removeprefix("s3://").partition("/")
    found = s3.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
    return [(said["Key"], said["UploadId"]) for said in found]


def parts_of(s3: Any, place: S3Place) -> int:
    bucket = place.url.removeprefix("s3://").partition("/")[0]
    return sum(
        len(s3.list_parts(Bucket=bucket, Key=key, UploadId=upload).get("Parts", []))
        for key, upload in unfinished(s3, place)
    )


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "nothing came of it"
        time.sleep(0.1)
    return found


@contextmanager
def uploading(place: S3Place, path: Path, sha256: str) -> Iterator[subprocess.Popen[bytes]]:
    code = (
        "import sys; from pathlib import Path; from laptime.data.s3 import S3Place;"
        f"S3Place({place.url!r}, part={PART}).upload(Path({str(path)!r}), 'a.npy', {sha256!r}, lambda n: None)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_an_upload_that_was_killed_goes_on(
    s3_server: S3Server, line: Proxy, place: S3Place, large: tuple[Path, str], tmp_path: Path
) -> None:
    path, sha256 = large
    s3 = client(s3_server)
    line.hold_up = 6 * PART
    with uploading(place, path, sha256) as process:
        assert line.held.wait(60)
        wait_for(lambda: parts_of(s3, place) >= 2)
        os.kill(process.pid, signal.SIGKILL)
    there = parts_of(s3, place)
    assert place.holds("a.npy", SIZE, sha256) is False
    line.reset()
    told: list[int] = []
    place.upload(path, "a.npy", sha256, told.append)
    assert sum(told) == SIZE
    assert line.up < SIZE - there * PART + SLACK
    assert unfinished(s3, place) == []
    line.reset()
    place.download("a.npy", tmp_path / "a.npy", SIZE, quiet)
    assert hashlib.sha256((tmp_path / "a.npy").read_bytes()).hexdigest() == sha256
    # What is there is not sent again.
    line.reset()
    place.upload(path, "a.npy", sha256, quiet)
    assert line.up < SLACK


def test_parts_of_other_bytes_are_not_joined(
    s3_server: S3Server, line: Proxy, place: S3Place, large: tuple[Path, str], tmp_path: Path
) -> None:
    path, sha256 = large
    s3 = client(s3_server)
    line.hold_up = 6 * PART
    with uploading(place, path, sha256):
        assert line.held.wait(60)
        wait_for(lambda: parts_of(s3, place))
    line.reset()
    other = tmp_path / "other.npy"
    other.write_bytes(os.urandom(SIZE))
    place.upload(other, "a.npy", hashlib.sha256(other.read_bytes()).hexdigest(), quiet)
    assert line.up > SIZE
    place.download("a.npy", tmp_path / "back.npy", SIZE, quiet)
    assert (tmp_path / "back.npy").read_bytes() == other.read_bytes()
    # The first one's upload may still go on; after a week nobody is taken to.
    bucket, _, prefix = place.url.removeprefix("s3://").partition("/")
    assert abort_stale(s3, bucket, prefix) == 0
    assert len(unfinished(s3, place)) == 1
    assert abort_stale(s3, bucket, prefix, datetime.now(UTC) + timedelta(days=8)) == 1
    assert unfinished(s3, place) == []


def test_an_endpoint_that_goes_away_in_the_middle(
    line: Proxy, place: S3Place, large: tuple[Path, str], tmp_path: Path
) -> None:
    path, sha256 = large
    place.upload(path, "a.npy", sha256, quiet)
    line.reset()
    line.cut_down = 5 * PART
    to = tmp_path / "a.npy"

    def moved(count: int) -> None:
        line.away = count > 0

    with pytest.raises(UnreachableError, match=r"can't be reached|can't be used"):
        place.download("a.npy", to, SIZE, moved)
    there = to.stat().st_size
    assert there >= PART
    # What was on its way is not waited for, and would be counted with the second download.
    wait_for(lambda: not any(t.name.startswith(THREAD_NAME) for t in threading.enumerate()))
    line.reset()
    told: list[int] = []
    place.download("a.npy", to, SIZE, told.append)
    assert told[0] == there
    assert sum(told) == SIZE
    assert line.down < SIZE - there + SLACK
    assert hashlib.sha256(to.read_bytes()).hexdigest() == sha256


def test_a_line_that_breaks_once_costs_nothing_but_the_parts_on_their_way(
    line: Proxy, place: S3Place, large: tuple[Path, str], tmp_path: Path
) -> None:
    path, sha256 = large
    place.upload(path, "a.npy", sha256, quiet)
    line.reset()
    line.cut_down = 3 * PART
    place.download("a.npy", tmp_path / "a.npy", SIZE, quiet)
    assert hashlib.sha256((tmp_path / "a.npy").read_bytes()).hexdigest() == sha256
    assert line.down < SIZE + 5 * PART


def test_an_object_that_changes_meanwhile_starts_anew(place: S3Place, large: tuple[Path, str], tmp_path: Path) -> None:
    path, sha256 = large
    place.upload(path, "a.npy", sha256, quiet)
    to, new, done = tmp_path / "a.npy", os.urandom(SIZE), list[int]()

    def moved(count: int) -> None:
        if count and not any(done):
            place.write(new, "a.npy")
        done.append(count)

    place.download("a.npy", to, SIZE, moved)
    assert to.read_bytes() == new
    # And where it changed since an interruption.
    place.upload(path, "a.npy", sha256, quiet)
    to.write_bytes(new[:PART])
    place.download("a.npy", to, SIZE, quiet)
    assert to.read_bytes() == path.read_bytes()


def test_two_writers_of_one_content(s3_server: S3Server, place: S3Place, large: tuple[Path, str]) -> None:
    path, sha256 = large
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(S3Place(place.url, PART).upload, path, "a.npy", sha256, quiet) for _ in range(3)]
        for one in both:
            one.result()
    assert place.holds("a.npy", SIZE, sha256)
    assert hashlib.sha256(place.read("a.npy") or b"").hexdigest() == sha256
    assert unfinished(client(s3_server), place) == []


def test_one_of_two_swaps_wins(place: S3Place) -> None:
    assert place.seen("latest.json") == (None, None)
    with ThreadPoolExecutor() as pool:
        won = list(pool.map(lambda n: place.swap(b"%d" % n, "latest.json", None), range(8)))
    assert won.count(True) == 1
    body, etag = place.seen("latest.json")
    assert body == b"%d" % won.index(True)
    assert place.swap(b"next", "latest.json", etag)
    assert not place.swap(b"late", "latest.json", etag)
    # The answer to one's own write may be lost and the write be tried again.
    assert place.swap(b"next", "latest.json", etag)


def test_a_key_that_may_only_read(
    s3_server: S3Server, line: Proxy, place: S3Place, large: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sha256 = large
    for name, value in s3_server.reader().items():
        monkeypatch.setenv(name, value)
    reader = S3Place(place.url, PART)
    reader.check()
    with pytest.raises(DataError, match=r"refuses with AccessDenied: these credentials may not .*s3:"):
        reader.upload(path, "a.npy", sha256, quiet)
    with pytest.raises(DataError, match=r"may not write there: they need s3:PutObject"):
        reader.swap(b"x", "latest.json", None)


class Expired(Quiet):
    """Answers as S3 does when a session token is over."""

    def do_GET(self) -> None:
        body = (
            b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code><Message>The provided token has '
            b"expired.</Message><RequestId>1</RequestId><HostId>1</HostId></Error>"
        )
        self.give(body, 400, kind="application/xml")


def test_an_expired_token(line: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Expired) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "old")
        with pytest.raises(DataError, match="the session token for s3://bucket/x has expired: get a new one"):
            S3Place("s3://bucket/x").check()
