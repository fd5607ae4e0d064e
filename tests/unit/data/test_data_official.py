"""The official archive, from a server that gives a small one of the same form; and `auto`."""

from __future__ import annotations

import hashlib
import io
import pickle
import socket
import struct
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import left_over, nobody, stores, web
from tests.serving import Quiet, serving

from laptime.catalogue import find_workload
from laptime.data.fetch import fetch, verify
from laptime.data.net import Budget
from laptime.data.official import CIFAR10_URL, Description, Official, cifar10, unpickle
from laptime.data.sources import Job, quiet
from laptime.data.store import Store
from laptime.errors import DataError, UnreachableError


def python2_pickle(fields: dict[str, Any]) -> bytes:
    """A dict as Python 2's cPickle wrote it: byte strings without a type, numpy's old module, 0 for False."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def value_of(value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
            dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            shape = b"".join(b"M" + struct.pack("<H", n) for n in value.shape) + b"\x86"
            start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
            return start + b"(K\x01" + shape + dtype + b"\x89" + text(value.tobytes()) + b"tb"
        items = b"".join(text(v.encode()) if isinstance(v, str) else b"K" + bytes([v]) for v in value)
        return b"](" + items + b"e"

    pairs = b"".join(text(key.encode()) + value_of(value) for key, value in fields.items())
    return b"\x80\x02}(" + pairs + b"u."


@dataclass
class Official10:
    """A small archive in the form of CIFAR-10's."""

    body: bytes
    description: Description
    images: np.ndarray[Any, Any]


def make_archive(evil: bytes = b"", extra: str = "") -> Official10:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 3, 32, 32), dtype=np.uint8)
    files = {"batches.meta": python2_pickle({"label_names": ["cat", "dog", "emu"]})}
    for i, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        part = images[10 * i : 10 * i + 10].reshape(10, 3072)
        files[name] = python2_pickle({"data": part, "labels": [j % 3 for j in range(10)]})
    if evil:
        files["data_batch_2"] = evil
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, body in [*((f"batches/{n}", b) for n, b in files.items()), *([(extra, b"x")] if extra else [])]:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    md5 = {name: hashlib.md5(body).hexdigest() for name, body in files.items()}
    description = Description(
        url="",
        md5=hashlib.md5(packed.getvalue()).hexdigest(),
        folder="batches",
        train=tuple((n, md5[n]) for n in ("data_batch_1", "data_batch_2")),
        test=(("test_batch", md5["test_batch"]),),
        names=("batches.meta", md5["batches.meta"]),
        names_key="label_names",
    )
    return Official10(packed.getvalue(), description, images)


def get(archive: Official10, home: Path, served: Path) -> tuple[Store, str]:
    served.mkdir(exist_ok=True)
    (served / "a.tar.gz").write_bytes(archive.body)
    job = Job(find_workload("cifar"), "official", Store(home / "data"), quiet)
    with web(served) as address:
        entry = Official(replace(archive.description, url=f"{address}/a.tar.gz")).fetch(job)
    return job.store, entry.digest


def test_a_small_archive(home: Path, tmp_path: Path) -> None:
    archive = make_archive()
    store, digest = get(archive, home, tmp_path / "served")
    meta = store.verify(digest)
    assert (meta.kind, meta.classes, meta.train_count, meta.test_count) == ("official", ("cat", "dog", "emu"), 20, 10)
    images = np.load(store.folder(digest) / "test_images.npy")
    assert np.array_equal(images, archive.images[20:].transpose(0, 2, 3, 1))
    job = Job(find_workload("cifar"), "official", store, quiet)
    assert Official(replace(archive.description, url=nobody())).fetch(job).digest == digest
    assert left_over(home) == []


def test_the_wrong_checksum(home: Path, tmp_path: Path) -> None:
    archive = make_archive()
    archive.description = replace(archive.description, md5="0" * 32)
    with pytest.raises(DataError, match="wrong checksum") as caught:
        get(archive, home, tmp_path / "served")
    assert not isinstance(caught.value, UnreachableError)
    archive = make_archive()
    archive.description = replace(archive.description, test=(("test_batch", "0" * 32),))
    with pytest.raises(DataError, match="test_batch has the wrong checksum"):
        get(archive, home, tmp_path / "served")
    archive.description = replace(archive.description, test=(("other", "0" * 32),))
    with pytest.raises(DataError, match="has no other"):
        get(archive, home, tmp_path / "served")
    assert stores(home) == left_over(home) == []


def test_a_path_that_climbs_out(home: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'\.\./\.\./out' in it climbs out"):
        get(make_archive(extra="../../out"), home, tmp_path / "served")
    assert stores(home) == left_over(home) == []


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("touched"),)


def test_a_pickle_that_does_things(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="not allowed in it"):
        get(make_archive(evil=pickle.dumps({"data": Evil()})), home, tmp_path / "served")
    assert not (tmp_path / "touched").exists()
    for body in (b"", b"\x80\x02}(", pickle.dumps([1])):
        with pytest.raises(DataError, match="data_batch_2"):
            get(make_archive(evil=body or b"x"), home, tmp_path / "served")
    with pytest.raises(DataError, match="not in its known form"):
        get(make_archive(evil=pickle.dumps({"data": [1], "labels": [0]})), home, tmp_path / "served")
    assert stores(home) == left_over(home) == []


def test_arrays_of_python_3_are_read_too() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for protocol in range(2, 5):
        found = unpickle(io.BytesIO(pickle.dumps({"data": array}, protocol)), "x")
        assert np.array_equal(found["data"], array)


def test_a_download_that_breaks_off(home: Path, tmp_path: Path) -> None:
    archive = make_archive()

    class Half(Quiet):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            self.give(archive.body[: len(archive.body) // 2], length=len(archive.body))

    with serving(Half) as address:
        job = Job(find_workload("cifar"), "official", Store(home / "data"), quiet)
        with pytest.raises(UnreachableError, match="broke off"):
            Official(replace(archive.description, url=f"{address}/a.tar.gz")).fetch(job)
    assert stores(home) == left_over(home) == []


def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        budget = Budget(left_s=0.2)
        with pytest.raises(UnreachableError, match=r"does not answer within 0\.2 s|timed out"):
            budget.probe(f"http://127.0.0.1:{silent.getsockname()[1]}/", 1.0)
        assert budget.left_s < 0.1


def test_the_address_is_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAPTIME_CIFAR10_URL", raising=False)
    description = cifar10()
    assert description.url == CIFAR10_URL
    assert description.md5 == "c58f30108f718f92721af3b95e74349a"
    assert (len(description.train), len(description.test)) == (5, 1)


def test_auto_without_a_network_takes_the_stand_in(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPTIME_CIFAR10_URL", f"{nobody()}/cifar.tar.gz")
    monkeypatch.setenv("LAPTIME_DATA_MIRROR", nobody())
    with pytest.raises(UnreachableError, match="can't be reached"):
        fetch("cifar", "official", home)
    data = fetch("cifar", "auto", home)
    assert (data.kind, data.train_count, data.test_count, len(data.classes)) == ("synthetic", 50_000, 10_000, 10)
    assert data.notice.startswith("GENERATED STAND-IN, NOT REAL DATA")
    assert data.notice.count("can't be reached") == 2
    assert verify("cifar", "auto", home).digest == data.digest
    said: list[str] = []
    again = fetch("cifar", "auto", home, lambda what, done, total: said.append(what))
    assert again.digest == data.digest
    assert said == []


def test_auto_stops_at_a_wrong_checksum(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served/cifar.tar.gz").write_bytes(make_archive().body)
    with web(tmp_path / "served") as address:
        monkeypatch.setenv("LAPTIME_CIFAR10_URL", f"{address}/cifar.tar.gz")
        with pytest.raises(DataError, match="wrong checksum"):
            fetch("cifar", "auto", home)
    assert stores(home) == left_over(home) == []
