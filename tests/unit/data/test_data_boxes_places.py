"""Where boxes come from: places, archives at addresses, stores, and what stands behind them."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from box_samples import coco_of, read_lines, write_table
from data_samples import left_over, stores, web

from laptime.catalogue import find_workload
from laptime.data.boxes.tensors import open_boxes
from laptime.data.fetch import fetch, source_of, verify
from laptime.data.folder import ArchiveUrl, is_archive_url
from laptime.data.sources import Job, quiet
from laptime.data.store import Store
from laptime.errors import DataError, UsageError
from laptime.spec import DataSpec

Do = Callable[[str, str, Path], DataSpec]


def with_box(root: Path, left: str, right: str) -> Path:
    """The folder with other sides, left and right, of the box in the CSV's second line."""
    lines = read_lines(root)
    lines[1][lines[0].index("xmin")], lines[1][lines[0].index("xmax")] = left, right
    write_table(root / "boxes.csv", lines)
    return root


def test_sides_keep_their_digits(photographs: Path, home: Path):
    found = fetch("detection", str(with_box(photographs, "34.561231", "34.561239")), home)
    (line,) = (line for line in read_lines(Path(found.path)) if line[0] == "images/0.png")
    assert line[2:] == ["34.561231", "4", "34.561239", "40"]


@pytest.mark.parametrize("form", ["csv", "coco"])
def test_a_class_is_one_whichever_way_its_accent_is_written(photographs: Path, home: Path, form: str):
    names = {"cat": "caf\u00e9", "dog": "cafe\u0301"}
    lines, coco = read_lines(photographs), coco_of(photographs)
    write_table(photographs / "boxes.csv", [[names.get(str(cell), cell) for cell in line] for line in lines])
    if form == "coco":
        coco["categories"] = [kind | {"name": names.get(kind["name"], "other")} for kind in coco["categories"]]
        (photographs / "a.json").write_text(json.dumps(coco))
        (photographs / "boxes.csv").unlink()
    assert fetch("detection", str(photographs), home).classes == ("caf\u00e9",)


def test_sides_that_training_sees_as_one_are_refused(photographs: Path, home: Path):
    with pytest.raises(DataError, match=r"xmax 5\.00000002 is not above xmin 5\.00000001 in single precision: correct"):
        fetch("detection", str(with_box(photographs, "5.00000001", "5.00000002")), home)
    with pytest.raises(DataError, match=r"line 2: xmax 2e\+300 is not above xmin 1e\+300"):
        fetch("detection", str(with_box(photographs, "1e300", "2e300")), home)


def test_an_image_whose_name_is_no_text_is_refused(photographs: Path, home: Path):
    shutil.copy(photographs / "images" / "1.png", photographs / "images" / os.fsdecode(b"b\xff.png"))
    with pytest.raises(DataError, match="has a name that is no UTF-8: rename it") as caught:
        fetch("detection", str(photographs), home)
    assert str(caught.value).isprintable()
    assert stores(home) == left_over(home) == []


def test_a_folder_whose_name_is_no_text_is_refused(photographs: Path, home: Path):
    odd = photographs.rename(photographs.parent / os.fsdecode(b"b\xff"))
    for do in (fetch, verify):
        with pytest.raises(DataError, match="has a name that is no UTF-8: rename it"):
            do("detection", str(odd), home)


def test_links_that_lead_nowhere_and_hidden_folders_are_passed_over(photographs: Path, home: Path):
    (photographs / "old.csv").symlink_to(photographs / "gone.csv")
    (photographs / ".trash").mkdir()
    first = fetch("detection", str(photographs), home)
    shutil.copy(photographs / "boxes.csv", photographs / ".trash" / "boxes.csv")
    assert fetch("detection", str(photographs), home) == first


def test_the_table_that_is_named_is_part_of_the_state(photographs: Path, home: Path, tmp_path: Path):
    table = shutil.move(photographs / "boxes.csv", photographs / ".boxes.txt")
    first = fetch("detection", f"{photographs}#boxes=.boxes.txt", home)
    table.write_text(table.read_text().replace("dog", "emu"))
    assert (first.classes, fetch("detection", f"{photographs}#boxes=.boxes.txt", home).classes) == (
        ("cat", "dog"),
        ("cat", "emu"),
    )


def packed(root: Path, to: Path) -> Path:
    to.parent.mkdir(exist_ok=True)
    with tarfile.open(to, "w") as tar:
        tar.add(root, "photographs")
    return to


def test_an_archive_at_an_address_is_the_folder(photographs: Path, home: Path, tmp_path: Path):
    name = f"{'é' * 100}.tar"  # as an address, longer than a file's name may be
    packed(photographs, tmp_path / "web" / name)
    with web(tmp_path / "web", length="banana") as address:
        found = fetch("detection", f"{address}/{quote(name)}?key=1", home)
    assert found.digest == fetch("detection", str(photographs), home).digest
    assert left_over(home) == []


def test_an_address_may_be_long(home: Path):
    job = Job(find_workload("cifar"), f"https://example.org/{'n' * 130}.zip", Store(home / "data"), quiet)
    assert isinstance(source_of(job), ArchiveUrl)
    assert is_archive_url("http://[bad/a.zip")  # told by what asks the server


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{photographs}#size=96", "#size= in .* is not for images with boxes .*: leave it out"),
        ("{photographs}#bands=4,3,2", "#bands= in .* is not for images with boxes .*: leave it out"),
        ("{photographs}#side=100#side=200", "#side= stands more than once in .*: give it once"),
        ("{photographs}#boxes=", "#boxes= in .* names no file of boxes"),
        ("synthetic#boxes=a.csv", "#boxes= in .* names no file of boxes"),
        ("{store}#side=900", "was not written with #side=900: give the folder that it was made of"),
        ("{store}#boxes=boxes.csv", "was not written with #boxes=boxes.csv"),
    ],
)
def test_nothing_behind_a_place_is_dropped(photographs: Path, home: Path, place: str, said: str):
    store = fetch("detection", f"{photographs}#side=800", home).path
    for do in (fetch, verify):
        with pytest.raises(UsageError, match=said):
            do("detection", place.format(photographs=photographs, store=store), home)


def test_a_store_by_its_folder_is_verified(photographs: Path, home: Path, tmp_path: Path):
    store = shutil.copytree(fetch("detection", f"{photographs}#side=800", home).path, tmp_path / "copy")
    assert verify("detection", f"{store}#side=800", tmp_path / "other") == fetch(
        "detection", f"{store}#side=800", tmp_path / "other"
    )
    table = store / "boxes.csv"
    table.write_bytes(table.read_bytes().replace(b"cat", b"cow"))
    with pytest.raises(DataError, match=r"boxes\.csv has the wrong checksum"):
        verify("detection", str(store), tmp_path / "other")


@pytest.mark.parametrize(
    ("written", "damaged", "said"),
    [(b"cat", b"cow", "'cow'"), (b",5,4,", b",5,x,", "'x'"), (b"30,40", b"04,40", "no area")],
)
def test_a_damaged_table_is_told_before_the_training(
    photographs: Path, home: Path, written: bytes, damaged: bytes, said: str
):
    found = fetch("detection", str(photographs), home)
    table = Path(found.path) / "boxes.csv"
    table.write_bytes(table.read_bytes().replace(written, damaged))
    with pytest.raises(DataError, match=rf"boxes\.csv .*{said}.*: delete .* and fetch the data again"):
        open_boxes(found)


def test_of_two_that_store_the_same_the_first_is_kept(photographs: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    rename = Path.rename

    def late(folder: Path, target: Path) -> Path:
        if len(target.name) == 64 and not target.exists():
            shutil.copytree(folder, target)  # the other process
        return rename(folder, target)

    monkeypatch.setattr(Path, "rename", late)
    found = fetch("detection", str(photographs), home)
    assert verify("detection", str(photographs), home) == found
    assert left_over(home) == []


def test_a_damaged_store_is_not_taken_for_the_new_one(photographs: Path, home: Path):
    found = fetch("detection", str(photographs), home)
    (Path(found.path) / "boxes.csv").unlink()
    shutil.rmtree(home / "data" / "index")
    with pytest.raises(DataError, match=r"boxes\.csv can't be read"):
        fetch("detection", str(photographs), home)
    assert not (home / "data" / "index").exists()


@pytest.mark.parametrize("do", [fetch, verify])
def test_what_is_no_folder_is_told_in_words_of_boxes(photographs: Path, home: Path, do: Do):
    for name, said in (("none", "does not exist"), ("boxes.csv", "is no folder and no archive")):
        with pytest.raises(DataError, match=rf"{name}' {said}: give a folder with images and their boxes"):
            do("detection", str(photographs / name), home)
