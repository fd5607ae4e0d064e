"""Layouts as people have them: links, notes beside folders, what Finder adds, splits without labels, odd paths."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from box_samples import read_lines, write_table
from data_samples import MakeFolder, web, write_image

from laptime.data.fetch import fetch
from laptime.data.tensors import open_tensors
from laptime.errors import DataError, UsageError
from laptime.places import expanded, find_places
from laptime.records import write_json


def packed(folder: Path, name: str, *more: str) -> Path:
    """A zip of all that is in a folder, and of some empty files."""
    path = folder.parent / name
    with zipfile.ZipFile(path, "w") as zipped:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            zipped.write(file, file.relative_to(folder))
        for extra in more:
            zipped.writestr(extra, b"x")
    return path


@pytest.mark.parametrize("more", ["__MACOSX/cat/._0.png", "README.txt", "pets/README.txt"])
def test_an_archive_with_a_note_or_what_finder_adds_is_read(make_folder: MakeFolder, home: Path, more: str) -> None:
    root = make_folder(splits=("pets",))
    found = fetch("cifar", str(packed(root, "pets.zip", more)), home)
    assert found.classes == ("cat", "dog", "emu")


def test_a_class_is_one_whichever_way_its_accent_is_written(make_folder: MakeFolder, home: Path) -> None:
    """A Mac writes a letter and its accent as two signs, which look the same."""
    one, two = "caf\u00e9", "cafe\u0301"
    split = make_folder(classes=(one, "dog"))
    (split / "test" / one).rename(split / "test" / two)
    whole = make_folder(splits=("",), classes=(one, two, "dog"), name="whole")
    found = [fetch("cifar", str(root), home) for root in (split, whole)]
    assert [data.classes for data in found] == [(one, "dog")] * 2
    assert [data.train_count + data.test_count for data in found] == [16, 12]


def test_a_wrong_archive_is_told_by_its_own_name(make_folder: MakeFolder, home: Path) -> None:
    path = packed(make_folder(splits=("pets",), classes=("cat",)), "one.zip")
    with pytest.raises(DataError) as caught:
        fetch("cifar", str(path), home)
    assert str(path) in str(caught.value)
    assert ".part-" not in str(caught.value)


def test_the_split_with_classes_is_the_test_not_a_flat_folder_of_that_name(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("train", "val"))
    write_image(root / "test" / "1.png", 1)
    found = fetch("cifar", str(root), home)
    assert (found.train_count, found.test_count) == (12, 12)
    assert "test left aside, val is the test" in found.notice


def test_data_sets_beside_one_another_are_told(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("EuroSAT_RGB", "EuroSAT_half"), classes=("Forest", "River"))
    notice = fetch("eurosat", str(root), home).notice
    assert (
        "Classes are EuroSAT_RGB, EuroSAT_half, none of which holds an image itself: where Forest, River and so"
        in notice
    )
    for name in ("EuroSAT_RGB", "EuroSAT_half"):  # one folder in each, as in Tiny ImageNet's, is no data set
        shutil.rmtree(root / name / "River")
    assert "Classes are" not in fetch("eurosat", str(root), home).notice


def test_a_set_of_pictures_beside_one_of_bands_is_refused(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("rgb", "tif"), classes=("Forest", "River"))
    for path in (root / "tif").rglob("*.png"):
        path.rename(path.with_suffix(".tif"))
    with pytest.raises(DataError, match=rf"sets beside one another \(rgb, tif\), .*TIFFs in tif alone.*{root / 'tif'}"):
        fetch("eurosat", f"{root}#bands=4,3,2", home)
    (root / "tif" / "River").rename(root / "tif" / "Lake")  # classes of their own
    with pytest.raises(DataError, match=r"is no TIFF|unreadable"):
        fetch("eurosat", f"{root}#bands=4,3,2", home)


@pytest.mark.parametrize(
    "splits",
    [
        ("training_set", "test_set"),
        ("seg_train/seg_train", "seg_test/seg_test"),
        ("Train_Images", "val-images"),
        ("traindata", "testdata"),
        ("train", "test_split"),
        ("train", "eval"),
        ("train2017", "val2017"),
        ("photos_train", "photos_test"),
    ],
)
def test_splits_with_a_word_beside_their_names_are_no_classes(
    make_folder: MakeFolder, home: Path, splits: tuple[str, str]
) -> None:
    found = fetch("cifar", str(make_folder(splits=splits)), home)
    assert (found.classes, found.train_count, found.test_count) == (("cat", "dog", "emu"), 12, 12)


def test_folders_that_only_sound_like_splits_are_classes(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("bullet_train", "crash_test", "car"))  # cars by the same sub-classes speak against it
    assert fetch("cifar", str(root), home).classes == ("bullet_train", "car", "crash_test")


def test_a_test_of_which_nothing_says_the_classes_is_told(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("train",))
    write_image(root / "test" / "unknown.png", 1)
    with pytest.raises(DataError, match=rf"test has no folder for each class: .* give {root / 'train'} itself"):
        fetch("cifar", str(root), home)
    shutil.copytree(root / "train", root / "valid")
    write_image(root / "test" / "unknown" / "1.png", 1)
    assert "test left aside, valid is the test" in fetch("cifar", str(root), home).notice


def test_a_class_that_is_written_in_two_ways_is_told(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    (root / "test" / "cat").rename(root / "test" / "C_at")
    with pytest.raises(DataError, match=r"rename test/C_at, if it is that, or remove train/cat"):
        fetch("cifar", str(root), home)


def test_classes_that_are_split_one_by_one_are_refused(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("cat", "dog"), classes=("train", "test"))
    with pytest.raises(DataError, match=r"each class of .* holds splits of its own \(test, train\)"):
        fetch("cifar", str(root), home)


def test_images_whose_form_is_not_read_are_told_and_those_of_browsers_are_read(
    make_folder: MakeFolder, home: Path
) -> None:
    root = make_folder(splits=("",))
    for number, suffix in enumerate(("jfif", "jpe", "heic")):
        write_image(root / "cat" / "new.jpg", number)
        (root / "cat" / "new.jpg").rename(root / "cat" / f"new.{suffix}")
    found = fetch("cifar", str(root), home)
    assert found.train_count + found.test_count == 12 + 2
    assert "1 image(s) of a form that is not read (.heic) were left out" in found.notice


def test_thumbnails_of_a_station_are_no_images(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("",))
    write_image(root / "cat" / "@eaDir" / "0.png" / "thumb.jpg", 1)
    found = fetch("cifar", str(root), home)
    assert (found.classes, found.train_count + found.test_count) == (("cat", "dog", "emu"), 12)


def test_a_link_back_is_no_class(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("",))
    (root / "loop").symlink_to(root)
    (root / "cat" / "above").symlink_to(root.parent)
    assert fetch("cifar", str(root), home).classes == ("cat", "dog", "emu")


def test_a_pipe_with_an_image_s_name_is_told(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder()
    os.mkfifo(root / "train" / "cat" / "pipe.png")
    with pytest.raises(DataError, match=r"pipe\.png has an image's name and is no file: remove it"):
        fetch("cifar", str(root), home)


def test_photographs_behind_a_link_are_found(photographs: Path, home: Path, tmp_path: Path) -> None:
    whole = fetch("detection", str(photographs), home)
    shutil.move(photographs / "images", tmp_path / "elsewhere")
    (photographs / "images").symlink_to(tmp_path / "elsewhere")
    (photographs / "loop").symlink_to(photographs)
    assert fetch("detection", str(photographs), home).digest == whole.digest


def test_an_archive_at_an_address_is_looked_at_again(photographs: Path, home: Path, tmp_path: Path) -> None:
    place = tmp_path / "web"
    place.mkdir()
    path = shutil.move(packed(photographs, "boxes.zip"), place / "boxes.zip")
    with web(place) as url:
        first = fetch("detection", f"{url}/boxes.zip", home)
        assert fetch("detection", f"{url}/boxes.zip", home).digest == first.digest
        lines = read_lines(photographs)
        write_table(photographs / "boxes.csv", lines[:-1])
        changed = packed(photographs, "boxes.zip")
        shutil.move(changed, path)
        os.utime(path, (1, 1))
        second = fetch("detection", f"{url}/boxes.zip", home)
    assert second.digest != first.digest


@pytest.mark.parametrize("workload", ["cifar", "detection"])
def test_a_server_in_trouble_leaves_the_copy_that_is_there(
    make_folder: MakeFolder, photographs: Path, home: Path, tmp_path: Path, workload: str
) -> None:
    place = tmp_path / "web"
    place.mkdir()
    source = photographs if workload == "detection" else make_folder(splits=("pets",))
    shutil.move(packed(source, "it.zip"), place / "it.zip")
    with web(place) as url:
        first = fetch(workload, f"{url}/it.zip", home)
    port = int(url.rpartition(":")[2])
    with web(place, status=503, port=port) as again:
        assert again == url
        found = fetch(workload, f"{url}/it.zip", home)
    assert found.digest == first.digest
    assert "The copy fetched earlier is used." in found.notice


def test_whole_numbers_of_32_bits_are_refused(tmp_path: Path, home: Path) -> None:
    for i in range(10):
        path = tmp_path / f"deep/{'ab'[i % 2]}/{i}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, np.full((8, 8), 3_000_000 + i, dtype=np.uint32))
    with pytest.raises(DataError, match="whole numbers of 32 bits have no known range"):
        fetch("cifar", str(tmp_path / "deep"), home)


def test_pictures_in_which_0_is_white_are_turned_round(tmp_path: Path, home: Path) -> None:
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    for form, values in (("minisblack", ramp), ("miniswhite", 65535 - ramp)):
        for i in range(4):
            path = tmp_path / f"{form}/{'ab'[i % 2]}/{i}.tif"
            path.parent.mkdir(parents=True, exist_ok=True)
            tifffile.imwrite(path, values, photometric=form)
    black, white = (
        open_tensors(fetch("cifar", str(tmp_path / f), home)).train.images for f in ("minisblack", "miniswhite")
    )
    assert torch.equal(black, white)
    assert black.max() > 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("~nosuchuser/x", "begins with a user who is not known here"),
        ("x" * 300, "can be no path"),
        ("itself", "can be no path .Too many levels"),
    ],
)
def test_what_can_be_no_path_is_told(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("itself").symlink_to("itself")
    with pytest.raises(UsageError, match=said):
        expanded(text)
    monkeypatch.setenv("LAPTIME_HOME", text)
    with pytest.raises(UsageError, match=said):
        find_places()


def test_a_name_that_is_no_text_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = os.fsdecode(b"caf\xe9")
    with pytest.raises(DataError, match="is a name that is no UTF-8: rename it"):
        write_json(tmp_path / "request.json", {"asked": name})
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / name))
    with pytest.raises(UsageError, match="is no UTF-8: set it to another folder"):
        find_places()
