"""A user's image folder: what is read, and every way in which it can be wrong."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from data_samples import MakeFolder, left_over, stores, write_image
from PIL import Image

from laptime.data.decode import MixedSizesError, Shape, decode_all, read_image
from laptime.data.fetch import fetch, verify
from laptime.errors import DataError, UsageError


def test_train_and_test(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    data = fetch("cifar", str(root), home)
    assert (data.kind, data.classes) == ("folder", ("cat", "dog", "emu"))
    assert (data.train_count, data.test_count) == (12, 12)
    assert data.notice == ""
    images = np.load(Path(data.path) / "train_images.npy")
    labels = np.load(Path(data.path) / "train_labels.npy")
    assert images.shape == (12, 32, 32, 3)
    assert labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert np.array_equal(images[5], np.asarray(Image.open(root / "train/dog/1.png")))


def test_the_second_start_reads_no_image(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    first = fetch("cifar", str(root), home)
    said: list[str] = []
    assert fetch("cifar", str(root), home, lambda what, done, total: said.append(what)) == first
    assert said == []


def test_a_changed_folder_is_read_again(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    first = fetch("cifar", str(root), home)
    write_image(root / "train/cat/new.png", 7)
    second = fetch("cifar", str(root), home)
    assert second.train_count == 13
    assert second.digest != first.digest
    assert len(stores(home)) == 2


def test_the_same_content_elsewhere_is_the_same_store(make_folder: MakeFolder, home: Path) -> None:
    assert (
        fetch("cifar", str(make_folder(name="a")), home).digest
        == fetch("cifar", str(make_folder(name="b")), home).digest
    )
    assert len(stores(home)) == 1


@pytest.mark.parametrize("name", ["val", "valid"])
def test_val_is_a_test(make_folder: MakeFolder, home: Path, name: str) -> None:
    assert fetch("cifar", str(make_folder(splits=("train", name))), home).test_count == 12


def test_a_choice_that_there_is_not_is_named_and_no_missing_folder(make_folder: MakeFolder, home: Path) -> None:
    with pytest.raises(DataError, match=r"'#sides=96' behind .* chooses nothing: give #bands= or #size= "):
        fetch("cifar", f"{make_folder()}#sides=96", home)


def test_one_folder_is_split_in_each_class(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("",), count=10)
    data = fetch("cifar", str(root), home)
    assert (data.train_count, data.test_count) == (24, 6)
    assert np.load(Path(data.path) / "test_labels.npy").tolist() == [0, 0, 1, 1, 2, 2]
    assert "A fifth" in data.notice


def test_images_on_both_sides_are_told(make_folder: MakeFolder, home: Path) -> None:
    """Whatever they are called and in whatever class; a link to the training is a test of nothing but copies."""
    root = make_folder()
    shutil.copy(root / "train/cat/2.png", root / "test/dog/3.png")
    Image.open(root / "train/emu/0.png").save(root / "test/emu/again.bmp")
    assert (
        "2 image(s) of the test, test/dog/3.png among them, are in the training, too."
        in fetch("cifar", str(root), home).notice
    )
    shutil.rmtree(root / "test")
    (root / "test").symlink_to(root / "train")
    assert fetch("cifar", str(root), home).notice.startswith("12 image(s) of the test, test/cat/0.png among them")


def test_copies_in_a_folder_that_is_split_are_told(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("",), count=10)
    for path in sorted(root.rglob("*.png")):
        shutil.copy(path, path.with_stem(f"copy{path.stem}"))
    data = fetch("cifar", str(root), home)
    assert data.test_count == 12
    assert " among them, are in the training, too." in data.notice


def test_files_that_are_no_images_are_counted(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    for name in ("train/cat/.hidden.png", "train/cat/Thumbs.db", "notes.txt"):
        (root / name).write_text("x")
    data = fetch("cifar", str(root), home)
    assert data.train_count == 12
    assert "3 file(s) that are no images" in data.notice


@pytest.mark.parametrize(("train", "test"), [("Train", "Test"), ("training", "validation"), ("TRAIN", "val")])
def test_splits_by_other_names(make_folder: MakeFolder, home: Path, train: str, test: str) -> None:
    data = fetch("cifar", str(make_folder((train, test))), home)
    assert (data.train_count, data.test_count, len(data.classes), data.notice) == (12, 12, 3, "")


def test_a_class_of_trains(tmp_path: Path, home: Path) -> None:
    for name in ("car", "train", "test"):
        for i in range(5):
            write_image(tmp_path / f"i/{name}/{i}.png", i)
    assert fetch("cifar", str(tmp_path / "i"), home).classes == ("car", "test", "train")


def test_images_outside_of_classes_are_told(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(("train", "test", "val"))
    for name in ("loose.png", "train/loose.png", "others/x/1.png"):
        write_image(root / name, 1)
    data = fetch("cifar", str(root), home)
    assert data.notice == "val left aside, test is the test. 3 image(s) outside of the classes' folders were left out."
    one = make_folder(("",), name="one")
    write_image(one / "loose.png", 1)
    assert "kept for the test. 1 image(s) outside of the classes' folders" in fetch("cifar", str(one), home).notice


def test_150_classes_with_odd_names_and_mixed_modes(tmp_path: Path, home: Path) -> None:
    names = sorted(["größe 1", "雪", "<b>x", "a b  c", *(f"class {i:03}" for i in range(146))])
    for name in names:
        for i, mode in enumerate(("L", "RGBA", "RGB", "P")):
            path = tmp_path / "i" / name / f"bild {i} ä.png"
            write_image(path, i)
            Image.open(path).convert(mode).save(path)
    data = fetch("cifar", str(tmp_path / "i"), home)
    assert (data.train_count, data.test_count, list(data.classes)) == (450, 150, names)
    assert np.load(Path(data.path) / "train_images.npy", mmap_mode="r").shape == (450, 32, 32, 3)


def _remove(root: Path, *names: str) -> None:
    for name in names:
        for path in (root / name).glob("*"):
            path.unlink()


def test_wrong_folders(make_folder: MakeFolder, home: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    only_train, only_test = make_folder(("train",), name="t1"), make_folder(("test",), name="t2")
    one = make_folder(classes=("cat",), name="one")
    hollow = make_folder(name="hollow")
    _remove(hollow, "train/dog")
    hollow_test = make_folder(name="hollow_test")
    _remove(hollow_test, "test/dog")
    lonely = make_folder(name="lonely")
    _remove(lonely, "test/emu")
    (lonely / "test/emu").rmdir()
    extra = make_folder(name="extra")
    write_image(extra / "test/yak/0.png", 1)
    single = make_folder(("",), count=1, name="single")
    wrapped = make_folder(name="wrapped/inner").parent
    deep = make_folder(("train/2750", "test/2750"), name="deep")
    cases = {
        tmp_path / "nowhere": r"'.*nowhere' does not exist",
        empty: "has no class",
        only_train: "no test images",
        only_test: "no train folder",
        one: "only one class, 'cat'",
        hollow: r"train/dog holds no images",
        hollow_test: r"test/dog holds no images",
        lonely: "'emu' .* stands in train and not in test",
        extra: "'yak' .* stands in test and not in train",
        single: "'cat' .* has one image",
        wrapped: "did you mean .*inner",
        deep: "only one class, '2750', .* move what is in .*train/2750 one folder up",
    }
    for root, message in cases.items():
        with pytest.raises(DataError, match=message):
            fetch("cifar", str(root), home)
    assert stores(home) == left_over(home) == []


def test_a_plain_file_is_no_data(tmp_path: Path, home: Path) -> None:
    (tmp_path / "x.bin").write_text("x")
    with pytest.raises(DataError, match="neither a folder nor"):
        fetch("cifar", str(tmp_path / "x.bin"), home)


@pytest.mark.parametrize("asked", ["", "ftp://host/x", "s3://"])
def test_no_such_kind_of_source(asked: str, home: Path) -> None:
    with pytest.raises(UsageError, match="no source of data"):
        fetch("cifar", asked, home)


def test_no_such_workload(home: Path) -> None:
    with pytest.raises(UsageError, match="did you mean cifar"):
        fetch("cifr", "synthetic", home)


def _png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(64))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def test_bad_images_are_named(make_folder: MakeFolder, home: Path, tmp_path: Path) -> None:
    jpeg = tmp_path / "whole.jpg"
    write_image(jpeg, 3)
    png = tmp_path / "whole.png"
    write_image(png, 3)
    cases = {
        "text.png": (b"not an image", "unreadable or cut off"),
        "empty.png": (b"", "unreadable or cut off"),
        "cut.jpg": (jpeg.read_bytes()[: jpeg.stat().st_size // 2], "unreadable or cut off"),
        "cut.png": (png.read_bytes()[: png.stat().st_size // 2], "unreadable or cut off"),
        "warned.png": (_png_claiming(10_000, 10_000), "more pixels than is safe"),
        "bomb.png": (_png_claiming(60_000, 60_000), "more pixels than is safe"),
    }
    for name, (body, message) in cases.items():
        root = make_folder(name=f"with-{name}")
        (root / "test/dog" / name).write_bytes(body)
        with pytest.raises(DataError, match=f"test/dog/{name} .*{message}"):
            fetch("cifar", str(root), home)
    (root / "test/dog/bomb.png").unlink()
    (root / "test/dog/gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(DataError, match=r"gone\.png can't be read"):
        fetch("cifar", str(root), home)
    assert stores(home) == left_over(home) == []


def test_modes_become_rgb(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)

    Image.fromarray(grey).save(path)
    assert np.array_equal(read_image(path), np.repeat(grey[..., None], 3, axis=2))

    Image.fromarray(grey.astype(np.uint16) * 257).save(path)
    assert np.array_equal(read_image(path), np.repeat(grey[..., None], 3, axis=2))

    clear = np.zeros((4, 4, 4), dtype=np.uint8)
    clear[0, 0] = (10, 20, 30, 255)
    Image.fromarray(clear).save(path)
    assert read_image(path)[0, 0].tolist() == [10, 20, 30]
    assert read_image(path)[1, 1].tolist() == [255, 255, 255]

    palette = Image.fromarray(grey).convert("P")
    palette.putpalette([v for i in range(256) for v in (i, 255 - i, 7)])
    palette.save(path)
    assert read_image(path)[0, 5].tolist() == [5, 250, 7]

    Image.fromarray(grey > 100).save(path)
    assert set(np.unique(read_image(path))) == {0, 255}


def test_blocks_are_in_order_in_many_processes(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", 1)
    write_image(tmp_path / "b.png", 2)
    names = ["a.png", "b.png", "b.png"] * 700
    found = np.concatenate(list(decode_all(tmp_path, names, Shape((32, 32), resize=False))))
    a, b = read_image(tmp_path / "a.png"), read_image(tmp_path / "b.png")
    assert np.array_equal(found[0::3], np.broadcast_to(a, (700, 32, 32, 3)))
    assert np.array_equal(found[1::3], np.broadcast_to(b, (700, 32, 32, 3)))
    write_image(tmp_path / "c.png", 2, (8, 8))
    with pytest.raises(MixedSizesError):
        list(decode_all(tmp_path, ["a.png", "c.png"], Shape((32, 32), resize=False)))


def test_verify_needs_something_stored(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    with pytest.raises(DataError, match="nothing is stored"):
        verify("cifar", str(root), home)
    assert fetch("cifar", str(root), home) == verify("cifar", str(root), home)
