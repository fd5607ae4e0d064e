"""Addresses with passwords and signatures: they open doors, and are written nowhere."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import ClassVar

import pytest
from data_samples import MakeFolder
from tests.serving import Quiet, serving

from laptime.data.boxes.fetch import draw_shapes
from laptime.data.fetch import fetch, push, verify
from laptime.errors import LaptimeError, UsageError

SECRET = "hunter2-and-more"


class _Guarded(Quiet):
    """Wants a user, a password and a signature, and says how long its answer is in words."""

    asked: ClassVar[list[tuple[str | None, str]]] = []
    folder = Path()

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer((self.folder / "a.zip").read_bytes())

    def _answer(self, body: bytes) -> None:
        self.asked.append((self.headers.get("Authorization"), self.path))
        self.give(body, length="nonsense")


@pytest.fixture
def guarded(tmp_path: Path, make_folder: MakeFolder) -> object:
    root = make_folder()
    _Guarded.folder = tmp_path / "served"
    _Guarded.asked.clear()
    _Guarded.folder.mkdir()
    with zipfile.ZipFile(_Guarded.folder / "a.zip", "w") as packed:
        for path in sorted(root.rglob("*.png")):
            packed.write(path, path.relative_to(root))
    with serving(_Guarded) as address:
        yield address.removeprefix("http://")


def test_a_password_and_a_signature_open_the_door_and_are_written_nowhere(guarded: str, home: Path) -> None:
    url = f"http://me:{SECRET}@{guarded}/a.zip?X-Amz-Signature={SECRET}"
    data = fetch("cifar", url, home)
    assert data.train_count == 12
    authorization, path = _Guarded.asked[-1]
    assert authorization is not None
    assert authorization.startswith("Basic ")
    assert path == f"/a.zip?X-Amz-Signature={SECRET}"
    assert fetch("cifar", url, home) == data
    assert verify("cifar", url, home).digest == data.digest
    assert SECRET not in data.model_dump_json()
    assert data.asked == f"http://***@{guarded}/a.zip?***"
    for file in home.rglob("*"):
        assert SECRET not in file.name
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()


def test_a_signature_of_boxes_is_written_nowhere(guarded: str, home: Path) -> None:
    draw_shapes(_Guarded.folder, 4)
    with zipfile.ZipFile(_Guarded.folder / "a.zip", "w") as packed:
        for path in (*_Guarded.folder.glob("*.png"), _Guarded.folder / "shapes.csv"):
            packed.write(path, path.name)
    data = fetch("detection", f"http://me:{SECRET}@{guarded}/a.zip?X-Amz-Signature={SECRET}", home)
    assert data.asked == f"http://***@{guarded}/a.zip?***"
    assert not [file for file in home.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]


@pytest.mark.parametrize(
    "address",
    [
        f"http://me:{SECRET}@127.0.0.1:9/a.zip",
        f"http://me:{SECRET}@127.0.0.1:9/data",
        f"http://127.0.0.1:9/a.zip?token={SECRET}",
        f"http://127.0.0.1:9/a b.zip?token={SECRET}",
        f"http://me:{SECRET}@[bad/a.zip",
        f"http://me:{SECRET}@host:port/a.zip",
        f"ftp://me:{SECRET}@host/a.zip",
        f"https://me:{SECRET}@/x",
    ],
)
def test_no_error_repeats_a_secret(address: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ask in (fetch, verify):
        with pytest.raises(LaptimeError) as caught:
            ask("cifar", address, home)
        assert SECRET not in str(caught.value)
    with pytest.raises(UsageError) as refused:
        push("cifar", "synthetic", home, address)
    assert SECRET not in str(refused.value)
    monkeypatch.setenv("LAPTIME_DATA_MIRROR", f"gopher://{address.partition('://')[2]}")
    with pytest.raises(UsageError) as caught_too:
        fetch("cifar", "auto", home)
    assert SECRET not in str(caught_too.value)
