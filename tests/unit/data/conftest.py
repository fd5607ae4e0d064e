"""Small image folders, made by the tests themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from box_samples import write_photographs
from data_samples import MakeFolder, write_image


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Makes `<root>/<split>/<class>/N.png`; returns the root."""

    def make(
        splits: tuple[str, ...] = ("train", "test"),
        classes: tuple[str, ...] = ("cat", "dog", "emu"),
        count: int = 4,
        name: str = "images",
    ) -> Path:
        root = tmp_path / name
        for s, split in enumerate(splits):
            for c, klass in enumerate(classes):
                for i in range(count):
                    write_image(root / split / klass / f"{i}.png", 1000 * s + 100 * c + i)
        return root

    return make


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LAPTIME_DATA_MIRROR", "LAPTIME_CIFAR10_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    return write_photographs(tmp_path / "photographs")


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    return write_photographs(tmp_path / "ten", 10)
