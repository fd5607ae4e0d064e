"""Fetches and pushes that are interrupted, repeated, damaged or made by two at once."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest
from mirror_samples import Silent, bucket, clean, images, objects, put, s3, web
from proxy import a_proxy
from s3_server import S3Server

from laptime.data.fetch import fetch, push
from laptime.data.net import download
from laptime.data.resume import note_tag, resumable_folder
from laptime.data.s3 import S3Place
from laptime.errors import DataError, UnreachableError

__all__ = ["bucket", "images", "s3"]


class Ranged(Silent):
    """A web server that sends parts, and breaks off where `cut` says."""

    cut: int | None = None
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        body = Path(self.translate_path(self.path)).read_bytes()
        etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        wanted = self.headers.get("Range") if self.headers.get("If-Range") == etag else None
        if wanted:
            self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : Ranged.cut])


def test_a_download_over_http_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, to, moved = os.urandom(3_000_000), tmp_path / "to", list[int]()
    (tmp_path / "www").mkdir()
    (tmp_path / "www/a").write_bytes(body)
    with web(tmp_path / "www", Ranged) as address:
        monkeypatch.setattr(Ranged, "cut", 1_000_000)
        with pytest.raises(UnreachableError, match="broke off after 1000000 of 3000000 bytes"):
            download(f"{address}/a", to, len(body), moved.append)
        monkeypatch.setattr(Ranged, "cut", None)
        moved.clear()
        download(f"{address}/a", to, len(body), moved.append)
        assert (Ranged.asked, moved[0], sum(moved)) == (["bytes=1000000-"], 1_000_000, 3_000_000)
        assert to.read_bytes() == body
        # Another version is sent whole.
        to.write_bytes(body[:5000])
        (tmp_path / "www/a").write_bytes(body[::-1])
        download(f"{address}/a", to, len(body), moved.append)
        assert to.read_bytes() == body[::-1]
        assert len(Ranged.asked) == 1


def test_what_an_interruption_left_need_not_be_sound(s3: str, images: Path, tmp_path: Path) -> None:
    data = push("cifar", str(images), tmp_path / "a", s3)
    etags = {name: S3Place(s3).seen(name)[1] for name in objects(s3)}
    name = f"cifar/{data.digest}/train_images.npy"
    with resumable_folder(tmp_path / "b/data", data.digest) as folder, suppress(UnreachableError):
        (folder / "train_images.npy").write_bytes(b"\0" * 1000)
        note_tag(folder / "train_images.npy", etags[name] or "")
        raise UnreachableError("away.")
    left = [p.name for p in (tmp_path / "b/data").iterdir()]
    assert left == []  # an error that was handled inside leaves nothing
    with suppress(UnreachableError), resumable_folder(tmp_path / "b/data", data.digest) as folder:
        (folder / "train_images.npy").write_bytes(b"\0" * 1000)
        note_tag(folder / "train_images.npy", etags[name] or "")
        raise UnreachableError("away.")
    assert len(list((tmp_path / "b/data").iterdir())) == 1
    assert fetch("cifar", s3, tmp_path / "b").digest == data.digest
    assert clean(tmp_path / "b")


def test_what_nobody_goes_on_with_is_swept(s3: str, images: Path, tmp_path: Path) -> None:
    root = tmp_path / "a/data"
    for name in ("old", "new"):
        with suppress(KeyboardInterrupt), resumable_folder(root, name) as folder:
            (folder / "x.npy").write_bytes(b"x")
            raise KeyboardInterrupt
    for path in (folder.with_name(folder.name.replace("new", "old")), *folder.parent.glob("*old/*")):
        os.utime(path, (1.0, 1.0))
    fetch("cifar", str(images), tmp_path / "a")
    assert [p.name for p in root.glob(".*")] == [folder.name]


def test_two_downloads_at_once(tmp_path: Path) -> None:
    with resumable_folder(tmp_path, "d") as one, resumable_folder(tmp_path, "d") as two:
        assert one != two
    assert list(tmp_path.iterdir()) == []


def test_a_push_repairs_what_is_damaged_there(s3: str, images: Path, tmp_path: Path) -> None:
    data = push("cifar", str(images), tmp_path / "a", s3)
    good = objects(s3)
    put(s3, f"cifar/{data.digest}/train_images.npy", b"damaged")
    push("cifar", str(images), tmp_path / "a", s3)
    assert objects(s3) == good


def test_of_two_pushes_at_once_the_first_stays_the_latest(s3: str, images: Path, tmp_path: Path) -> None:
    first = push("cifar", str(images), tmp_path / "a", s3)
    shutil.copytree(images, tmp_path / "other")
    shutil.copy(images / "train/cat/0.png", tmp_path / "other/train/cat/9.png")
    shutil.copytree(images, tmp_path / "third")
    shutil.copy(images / "train/dog/0.png", tmp_path / "third/train/dog/9.png")
    pushed = []

    def meanwhile(what: str, done: int, total: int) -> None:
        if what == "uploading" and not pushed:
            pushed.append(push("cifar", str(tmp_path / "third"), tmp_path / "c", s3).digest)

    with pytest.raises(DataError, match=r"another push of 'cifar' .* came first and stays the latest"):
        push("cifar", str(tmp_path / "other"), tmp_path / "a", s3, meanwhile)
    assert fetch("cifar", s3, tmp_path / "b").digest == pushed[0] != first.digest


def test_ctrl_c_keeps_what_has_arrived(
    s3: str, s3_server: S3Server, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = push("cifar", str(images), tmp_path / "a", s3)
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "b"))
    command = [sys.executable, "-m", "laptime", "data", "fetch", "cifar", "--data", s3]
    with a_proxy(s3_server.endpoint) as (line, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        line.hold_down = 20_000
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert line.held.wait(60)
        time.sleep(0.5)  # the other parts are on their way too
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGINT
        assert "laptime: interrupted. What has arrived is kept: the same command goes on from there." in said
        assert "Traceback" not in said
        line.reset()
        assert fetch("cifar", s3, tmp_path / "b").digest == pushed.digest
    assert clean(tmp_path / "b")
