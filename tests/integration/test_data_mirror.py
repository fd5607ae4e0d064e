"""Mirrors: pushed to a real S3 server, fetched from it and from a web server, and everything that goes wrong."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from mirror_samples import bucket, clean, images, objects, put, s3, web

from laptime.data.fetch import fetch, push, verify
from laptime.errors import DataError, UnreachableError
from laptime.ladder.data import fetch_data, push_data
from laptime.places import Places

__all__ = ["bucket", "images", "s3"]


def test_there_and_back(s3: str, images: Path, tmp_path: Path) -> None:
    said: list[str] = []
    pushed = push("cifar", str(images), tmp_path / "a", s3, lambda what, done, total: said.append(what))
    assert "uploading" in said
    names = sorted(objects(s3))
    assert names[-1] == "cifar/latest.json"
    assert len(names) == 6
    found = fetch("cifar", s3, tmp_path / "b")
    assert (found.kind, found.digest, found.train_count) == ("mirror", pushed.digest, 10)
    assert verify("cifar", s3, tmp_path / "b") == found
    said.clear()
    assert fetch("cifar", s3, tmp_path / "b", lambda what, done, total: said.append(what)) == found
    push("cifar", str(images), tmp_path / "a", s3, lambda what, done, total: said.append(what))
    assert said == []
    assert clean(tmp_path / "b")


def test_a_new_push_is_seen(s3: str, images: Path, tmp_path: Path) -> None:
    first = push("cifar", str(images), tmp_path / "a", s3)
    assert fetch("cifar", s3, tmp_path / "b").digest == first.digest
    shutil.copy(images / "train/cat/0.png", images / "train/cat/9.png")
    second = push("cifar", str(images), tmp_path / "a", s3)
    assert fetch("cifar", s3, tmp_path / "b").digest == second.digest != first.digest


def test_through_the_child(s3: str, images: Path, tmp_path: Path) -> None:
    pushed = push_data("cifar", str(images), s3, Places(tmp_path / "a"))
    assert fetch_data("cifar", s3, Places(tmp_path / "b")).digest == pushed.digest
    with pytest.raises(DataError, match="does not exist"):
        fetch_data("cifar", "s3://no-such-bucket-here/x", Places(tmp_path / "b"))


def test_auto_asks_the_mirror_first(s3: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPTIME_DATA_MIRROR", s3)
    pushed = push("cifar", str(images), tmp_path / "a", s3)
    found = fetch("cifar", "auto", tmp_path / "b")
    assert (found.asked, found.kind, found.digest) == ("auto", "mirror", pushed.digest)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert fetch("cifar", "auto", tmp_path / "b") == found


def test_over_http(s3: str, images: Path, tmp_path: Path) -> None:
    pushed = push("cifar", str(images), tmp_path / "a", s3)
    for name, body in objects(s3).items():
        path = tmp_path / "www/mirror" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    with web(tmp_path / "www") as address:
        found = fetch("cifar", f"{address}/mirror", tmp_path / "b")
        assert (found.kind, found.digest) == ("mirror", pushed.digest)
        with pytest.raises(UnreachableError, match="has no data for 'cifar'"):
            fetch("cifar", f"{address}/other", tmp_path / "b")
        wrong = tmp_path / f"www/mirror/cifar/{pushed.digest}/test_images.npy"
        good = wrong.read_bytes()
        wrong.write_bytes(good[:-1] + b"?")
        with pytest.raises(DataError, match=r"test_images\.npy has the wrong checksum"):
            fetch("cifar", f"{address}/mirror", tmp_path / "c")
        wrong.write_bytes(wrong.read_bytes() + b"more")
        with pytest.raises(DataError, match="is larger than the"):
            fetch("cifar", f"{address}/mirror", tmp_path / "c")
        wrong.unlink()
        with pytest.raises(UnreachableError, match=r"status 404.*kept: the same command goes on from there"):
            fetch("cifar", f"{address}/mirror", tmp_path / "c")
        assert not list((tmp_path / "c/data").glob("?" * 64))
        wrong.write_bytes(good)
        assert fetch("cifar", f"{address}/mirror", tmp_path / "c").digest == pushed.digest
    again = fetch("cifar", f"{address}/mirror", tmp_path / "b")
    assert again.digest == pushed.digest
    assert "The copy fetched earlier is used." in again.notice
    assert clean(tmp_path / "c")


def test_a_stand_in_stays_one(s3: str, images: Path, tmp_path: Path) -> None:
    data = push("cifar", str(images), tmp_path / "a", s3)
    name = f"cifar/{data.digest}/meta.json"
    meta = json.loads(objects(s3)[name]) | {"kind": "synthetic", "notice": "GENERATED"}
    put(s3, name, json.dumps(meta).encode())
    found = fetch("cifar", s3, tmp_path / "b")
    assert (found.kind, found.notice) == ("synthetic", "GENERATED")


def test_what_stands_there_may_be_wrong(s3: str, images: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="push some there first"):
        fetch("cifar", s3, tmp_path / "b")
    data = push("cifar", str(images), tmp_path / "a", s3)
    good = objects(s3)
    prefix = f"cifar/{data.digest}"
    other = json.loads(good[f"{prefix}/meta.json"]) | {"schema": "laptime.data/9"}
    cases = [
        (f"{prefix}/train_labels.npy", good[f"{prefix}/train_labels.npy"][:-1] + b"?", "wrong checksum"),
        (f"{prefix}/train_labels.npy", b"short", "has 5 bytes and should have"),
        (f"{prefix}/meta.json", b"{", "damaged"),
        (f"{prefix}/meta.json", json.dumps(other).encode(), r"newer laptime \(schema 'laptime.data/9'"),
        ("cifar/latest.json", b'{"schema": "laptime.data-latest/1", "digest": "../../../etc"}', "holds no digest"),
        ("cifar/latest.json", b'{"schema": "laptime.data-latest/7", "digest": ""}', "newer laptime"),
        ("cifar/latest.json", b"[]", "damaged"),
    ]
    for name, body, message in cases:
        put(s3, name, body)
        with pytest.raises(DataError, match=f"{message}.*push"):
            fetch("cifar", s3, tmp_path / "b")
        put(s3, name, good[name])
    assert clean(tmp_path / "b")
    assert fetch("cifar", s3, tmp_path / "b").digest == data.digest


def test_half_a_push_is_never_read(s3: str, images: Path, tmp_path: Path) -> None:
    data = fetch("cifar", str(images), tmp_path / "a")
    put(s3, f"cifar/{data.digest}/train_images.npy", b"half")
    with pytest.raises(UnreachableError, match="push some there first"):
        fetch("cifar", s3, tmp_path / "b")
    assert push("cifar", str(images), tmp_path / "a", s3).digest == fetch("cifar", s3, tmp_path / "b").digest


def test_no_bucket_no_credentials_nobody(
    s3: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(url: str) -> list[DataError]:
        errors = []
        with pytest.raises(DataError) as caught:
            push("cifar", str(images), tmp_path / "a", url)
        errors.append(caught.value)
        with pytest.raises(DataError) as caught:
            fetch("cifar", url, tmp_path / "b")
        return [*errors, caught.value]

    def same(errors: list[DataError], kind: type[DataError], text: str) -> None:
        for error in errors:
            assert type(error) is kind
            assert text in str(error)
            assert "\n" not in str(error)

    same(both("s3://no-such-bucket-here/x"), DataError, "the bucket 'no-such-bucket-here' does not exist")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    same(both(s3), DataError, "refuses these credentials")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    same(both(s3), DataError, "there are no credentials")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    same(both(s3), UnreachableError, "can't be reached")
    assert clean(tmp_path / "b")


@pytest.mark.slow
def test_the_real_cifar(tmp_path: Path) -> None:
    folder = os.environ.get("LAPTIME_TEST_CIFAR")
    if not folder:
        pytest.skip("LAPTIME_TEST_CIFAR does not name a folder with the real CIFAR-10 as images")
    data = fetch_data("cifar", folder, Places(tmp_path))
    assert (data.train_count, data.test_count, len(data.classes)) == (50_000, 10_000, 10)
    assert fetch_data("cifar", folder, Places(tmp_path)) == data
