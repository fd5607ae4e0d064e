"""The sizes of a folder's images: kept, made one, asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_samples import MakeFolder, stores, write_image

from laptime.data.fetch import fetch, verify
from laptime.errors import UsageError


def test_mixed_sizes_become_the_workloads(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    write_image(root / "train/dog/wide.png", 1, (50, 20))
    data = fetch("cifar", str(root), home)
    assert np.load(Path(data.path) / "train_images.npy", mmap_mode="r").shape == (13, 32, 32, 3)
    assert "resized to 32x32" in data.notice


def test_one_other_size_is_kept(tmp_path: Path, home: Path) -> None:
    for split in ("train", "test"):
        for name in ("a", "b"):
            write_image(tmp_path / f"i/{split}/{name}/0.png", 1, (24, 16))
    data = fetch("cifar", str(tmp_path / "i"), home)
    assert np.load(Path(data.path) / "train_images.npy", mmap_mode="r").shape == (2, 16, 24, 3)


@pytest.mark.parametrize(("size", "shape"), [("48", (48, 48)), ("90x40", (40, 90))])
def test_a_size_that_is_asked_for(tmp_path: Path, home: Path, size: str, shape: tuple[int, int]) -> None:
    root = tmp_path / "i"
    for name in ("a", "b"):
        for i, own in enumerate(((48, 40), (200, 150), (17, 90), (300, 400))):
            write_image(root / name / f"{i}.png", i, own)
    asked = f"{root}#size={size}"
    data = fetch("cifar", asked, home)
    assert (data.asked, data.train_count, data.test_count) == (asked, 6, 2)
    assert np.load(Path(data.path) / "train_images.npy", mmap_mode="r").shape == (6, *shape, 3)
    assert (
        f"Images of another size were resized to {shape[1]}x{shape[0]}, not keeping their proportions." in data.notice
    )
    assert verify("cifar", asked, home) == data
    plain = fetch("cifar", str(root), home)
    assert plain.digest != data.digest
    assert "resized to 32x32, not keeping their proportions; #size=WIDTHxHEIGHT" in plain.notice
    assert fetch("cifar", f"{data.path}#size={size}", home).digest == data.digest
    with pytest.raises(UsageError, match=rf"holds images of {shape[1]}x{shape[0]}: give the folder"):
        fetch("cifar", f"{data.path}#size=32", home)


def test_large_photographs_become_small(tmp_path: Path, home: Path) -> None:
    for name in ("a", "b"):
        for i in range(2):
            write_image(tmp_path / f"i/{name}/{i}.png", i, (300, 200))
    data = fetch("cifar", str(tmp_path / "i"), home)
    assert np.load(Path(data.path) / "train_images.npy", mmap_mode="r").shape == (2, 32, 32, 3)
    assert "Images of more than 256 pixels a side were resized to 32x32" in data.notice
    whole = fetch("cifar", f"{tmp_path / 'i'}#size=300x200", home)
    assert np.load(Path(whole.path) / "train_images.npy", mmap_mode="r").shape == (2, 200, 300, 3)


@pytest.mark.parametrize("text", ["", "0", "7", "2049", "64x", "x64", "64x64x64", "-64", "6.4", "٦٤", "64 "])
def test_what_is_no_size(make_folder: MakeFolder, home: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"behind #size= is no size: give 8 to 2048 pixels, such as #size=96"):
        fetch("cifar", f"{make_folder()}#size={text}", home)


def test_what_has_no_images_to_resize(make_folder: MakeFolder, home: Path) -> None:
    for asked in ("auto", "official", "synthetic", "s3://bucket/prefix"):
        with pytest.raises(UsageError, match=f"#size= is for a folder of images.* not for '{asked}': leave it out"):
            fetch("cifar", f"{asked}#size=64", home)
    with pytest.raises(UsageError, match="bands are measured values and never resized"):
        fetch("cifar", f"{make_folder()}#size=64#bands=1", home)
    assert stores(home) == []
