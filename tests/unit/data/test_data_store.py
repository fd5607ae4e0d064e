"""The store: whole or not at all, checked, and never of another schema."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from data_samples import MakeFolder, left_over, stores

from laptime.data.disk import PARTIAL, check_room, sweep
from laptime.data.fetch import fetch, verify
from laptime.data.store import Entry, Store
from laptime.data.writer import Plan, publish, writing
from laptime.errors import DataError

PLAN = Plan("folder", "x", ("a", "b"), 6, 4, 8, 8)


def write(store: Store, seed: int = 0, cut: int = 6) -> str:
    rng = np.random.default_rng(seed)
    train = rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    labels = np.array([0, 1] * 3, dtype=np.int64)
    with writing(store, PLAN) as writer:
        writer.add("train", train[:cut], labels[:cut])
        writer.add("train", train[cut:], labels[cut:])
        writer.add("test", train[:4], labels[:4])
        return publish(store, writer, "").digest


def test_the_digest_is_the_contents(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    assert write(one) == write(other, cut=2) == write(one)
    assert write(one, seed=1) != write(other)
    images = np.load(one.folder(write(one)) / "train_images.npy")
    meta = one.verify(write(one))
    assert meta.mean == pytest.approx(tuple((images / 255).mean(axis=(0, 1, 2))))
    assert meta.std == pytest.approx(tuple((images / 255).std(axis=(0, 1, 2))))


def test_a_store_knows_the_share_of_the_largest_class_of_its_test(tmp_path: Path) -> None:
    store, labels = Store(tmp_path / "data"), np.array([0, 0, 0, 1], dtype=np.int64)
    images = np.zeros((6, 8, 8, 3), dtype=np.uint8)
    with writing(store, PLAN) as writer:
        writer.add("train", images, np.array([0, 1] * 3, dtype=np.int64))
        writer.add("test", images[:4], labels)
        digest = publish(store, writer, "").digest
    assert store.spec(Entry(digest, "folder"), "x").commonest == 0.75


def test_an_error_inside_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    with pytest.raises(DataError, match="short of what was planned"), writing(store, PLAN) as writer:
        publish(store, writer, "")
    assert list(store.root.iterdir()) == []


def test_two_writers_at_once(tmp_path: Path) -> None:
    store, gate = Store(tmp_path / "data"), threading.Barrier(4)

    def work(_: int) -> str:
        gate.wait()
        return write(store)

    with ThreadPoolExecutor(4) as pool:
        digests = set(pool.map(work, range(4)))
    assert [p.name for p in store.root.iterdir()] == list(digests)
    store.verify(digests.pop())


def test_a_full_disk(make_folder: MakeFolder, home: Path) -> None:
    # A limit on the size of files fails as a full disk does, in the middle of a write, and needs no root.
    root = make_folder(count=20)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(DataError, match=r"no room in .* needs \d+ bytes .* free some space") as caught:
            fetch("cifar", str(root), home)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert stores(home) == left_over(home) == []


def test_no_room_is_seen_before_a_byte_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"needs {2**62} bytes"):
        check_room(tmp_path, 2**62)


def test_a_folder_that_cannot_be_made(make_folder: MakeFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="can't be written to"):
        fetch("cifar", str(make_folder()), tmp_path / "file")


@pytest.mark.parametrize("name", ["train_images.npy", "test_labels.npy"])
def test_damage_is_found_and_named(make_folder: MakeFolder, home: Path, name: str) -> None:
    root = str(make_folder())
    path = Path(fetch("cifar", root, home).path) / name
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)
    with pytest.raises(DataError, match=rf"{name} has the wrong checksum .* delete .*laptime data fetch"):
        verify("cifar", root, home)
    path.write_bytes(body[:-1])
    with pytest.raises(DataError, match=rf"{name} has \d+ bytes and should have \d+"):
        fetch("cifar", root, home)
    path.write_bytes(b"x" * len(body))
    with pytest.raises(DataError, match=rf"{name} has a damaged header"):
        fetch("cifar", root, home)
    path.unlink()
    with pytest.raises(DataError, match=rf"{name} can't be read"):
        fetch("cifar", root, home)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schema": "laptime.data/3"},
            "newer laptime .*'laptime.data/3', this version reads 'laptime.data/2'",
        ),
        ({"schema": None}, "names no schema"),
        ({"train_count": 5}, "not valid"),
        ({"digest": "../../etc"}, "not valid"),
        ({"files": {}}, "not valid"),
        ({"more": 1}, "not valid"),
    ],
)
def test_another_meta(make_folder: MakeFolder, home: Path, change: dict[str, object], message: str) -> None:
    root = str(make_folder())
    path = Path(fetch("cifar", root, home).path) / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=f"{message}.*delete .* and fetch the data again"):
        fetch("cifar", root, home)
    path.write_text("{")
    with pytest.raises(DataError, match="damaged"):
        fetch("cifar", root, home)


def test_a_stores_own_folder_is_used_where_it_stands(make_folder: MakeFolder, home: Path, tmp_path: Path) -> None:
    made = fetch("cifar", str(make_folder("images")), home)
    moved = Path(made.path).rename(tmp_path / "carried")
    found = fetch("cifar", str(moved), tmp_path / "elsewhere")
    assert found.path == str(moved)
    assert (found.digest, found.classes, found.kind) == (made.digest, made.classes, made.kind)
    assert not (tmp_path / "elsewhere").exists()
    (moved / "meta.json").write_text("{")
    with pytest.raises(DataError, match="carried"):
        fetch("cifar", str(moved), home)


def test_a_removed_store_is_made_again(make_folder: MakeFolder, home: Path) -> None:
    root = str(make_folder())
    first = fetch("cifar", root, home)
    for path in Path(first.path).iterdir():
        path.unlink()
    Path(first.path).rmdir()
    assert fetch("cifar", root, home) == first
    verify("cifar", root, home)


def test_a_damaged_index_is_written_again(make_folder: MakeFolder, home: Path) -> None:
    root = str(make_folder())
    first = fetch("cifar", root, home)
    for body in ("{", "[]", '{"schema": "laptime.data-index/9"}'):
        for path in (home / "data/index").iterdir():
            path.write_text(body)
        assert fetch("cifar", root, home) == first


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.getpid())"]
    gone = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    dead, mine, young = (tmp_path / f"{PARTIAL}{owner}" for owner in (f"{gone}-a", f"{os.getpid()}-b", "1-c"))
    for folder in (dead, mine, young):
        folder.mkdir()
    for folder in (dead, mine):
        os.utime(folder, (0, 0))
    sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([mine.name, young.name])
