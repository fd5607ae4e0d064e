"""Boxes on images: what a folder and its CSV come to, and every way in which they can be wrong."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from box_samples import HEIGHT, WIDTH, read_lines, write_photographs, write_table
from data_samples import left_over, stores
from PIL import Image

from laptime.catalogue import find_workload
from laptime.data.boxes.columns import COLUMNS
from laptime.data.boxes.fetch import draw_shapes
from laptime.data.boxes.tensors import collate, open_boxes, rows
from laptime.data.fetch import fetch, push, verify
from laptime.errors import DataError, UsageError


def test_a_folder_becomes_a_store_and_tensors(photographs: Path, home: Path):
    found = fetch("detection", str(photographs), home)
    assert (found.train_count, found.test_count, found.classes) == (4, 1, ("cat", "dog"))
    data = open_boxes(found)
    items = [data.train.dataset[i] for i in range(4)] + [data.test.dataset[0]]
    right = sorted(float(item.boxes[0, 2]) for item in items)
    assert right == [30, 31, 32, 33, 34]
    for item in items:
        number = int(item.boxes[0, 2]) - 30
        assert item.labels.tolist() == [1 if number % 2 else 2]
        pixels = np.asarray(Image.open(photographs / "images" / f"{number}.png"))
        assert torch.equal(item.image, torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255)
        assert item.about[1:] == (HEIGHT, WIDTH, 1)


def test_what_was_stored_is_found_and_verified(photographs: Path, home: Path):
    first = fetch("detection", str(photographs), home)
    assert fetch("detection", str(photographs), home) == first
    assert verify("detection", str(photographs), home).digest == first.digest
    assert fetch("detection", first.path, home).digest == first.digest
    image = next((Path(first.path) / "images" / "images").iterdir())
    spoiled = bytearray(image.read_bytes())
    spoiled[-20] ^= 1
    image.write_bytes(spoiled)
    with pytest.raises(DataError, match=f"{image.name} has the wrong checksum"):
        verify("detection", str(photographs), home)
    image.unlink()
    with pytest.raises(DataError, match=f"{image.name} can't be read"):
        fetch("detection", str(photographs), home)


def test_a_folder_that_was_changed_is_another_one(photographs: Path, home: Path):
    first = fetch("detection", str(photographs), home)
    lines = read_lines(photographs)
    lines[1][-2] = "31.5"
    write_table(photographs / "boxes.csv", lines)
    assert fetch("detection", str(photographs), home).digest != first.digest


def test_an_archive_is_the_folder(photographs: Path, home: Path, tmp_path: Path):
    with tarfile.open(tmp_path / "photographs.tar", "w") as tar:
        tar.add(photographs, "photographs")
    found = fetch("detection", str(tmp_path / "photographs.tar"), home)
    assert found.digest == fetch("detection", str(photographs), home).digest


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("xmax", "5", "line 3: xmax 5 is not above xmin 5"),
        ("ymin", "40", "line 3: ymax 40 is not above ymin 40"),
        ("xmax", "61", "line 3: xmax 61 is outside of images/1.png, which is 60x40"),
        ("ymin", "-1", "line 3: ymin -1 is outside of images/1.png"),
        ("ymin", "nan", "line 3: ymin is 'nan': give a number of pixels"),
        ("xmin", "five", "line 3: xmin is 'five'"),
        ("xmin", "", "line 3: xmin is ''"),
        ("filename", "9.png", "line 3: no image '9.png' is in"),
        ("filename", "9" * 400, "line 3: no image '9999"),  # longer than a file's name may be
        ("filename", "1.JPG", "line 3: no image '1.JPG' is in {}, but '1.png' is: write"),
        ("ymax", "40,1", "line 3: it has more values than there are columns"),
        ("filename", "", "line 3: it names no image"),
        ("class", " ", "line 3: it names no class"),
    ],
)
def test_a_line_that_is_no_box_is_named(photographs: Path, home: Path, column: str, value: str, said: str):
    lines = read_lines(photographs)
    lines[2][lines[0].index(column)] = value
    (photographs / "boxes.csv").write_text("\n".join(",".join(map(str, line)) for line in lines))
    with pytest.raises(DataError) as caught:
        fetch("detection", str(photographs), home)
    assert f"boxes.csv, {said.format(photographs)}" in str(caught.value)
    assert not stores(home)
    assert not left_over(home)


@pytest.mark.parametrize(
    ("column", "called"), [("class", "label"), ("filename", "Image_ID"), ("xmin", "x1"), ("ymax", "bottom")]
)
def test_a_column_that_is_called_otherwise_is_named(photographs: Path, home: Path, column: str, called: str):
    head, *lines = read_lines(photographs)
    write_table(photographs / "boxes.csv", [[called if name == column else name for name in head], *lines])
    with pytest.raises(
        DataError, match=rf"no column '{column}': rename '{called}' to {column}, if that is meant; a CSV"
    ):
        fetch("detection", str(photographs), home)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("image_name,label,xtl,ytl,xbr,ybr", "rename 'image_name' to filename, 'label' to class, 'xtl' to xmin, 'ytl'"),
        ("Filename,Width,Height,Class,XMin,YMin,XMax,YMax", "rename 'Filename' to filename, 'Class' to class, 'XMin'"),
        ("filename,class,x,y,width,height", "says a corner, a width and a height: write xmin, ymin and, with these"),
        (
            "image_id,width,height,bbox,source",
            "says a box in one column, 'bbox': write each number into its own; a",
        ),
        (
            "filename,class_id,xmin,ymin,xmax,ymax",
            "has no column 'class': rename 'class_id' to class, if that is meant",
        ),
        ("images/1.png,5,4,30,40.5,cat", "begins without names of its columns (images/1.png,5,4,30,40.5,cat): write"),
        ("PK\x03\x04[Content_Types].xml", "is a workbook of a spreadsheet, whatever its name says: export it as CSV"),
        ("", "is empty: a CSV of boxes has"),
    ],
)
def test_the_columns_of_other_tools_are_told_at_once(photographs: Path, home: Path, head: str, said: str):
    (photographs / "boxes.csv").write_text(f"{head}\n")
    with pytest.raises(DataError) as caught:
        fetch("detection", str(photographs), home)
    assert said in str(caught.value)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_missing_column_is_named(photographs: Path, home: Path, column: str):
    lines = read_lines(photographs)
    place = lines[0].index(column)
    write_table(photographs / "boxes.csv", [[v for i, v in enumerate(line) if i != place] for line in lines])
    with pytest.raises(DataError, match=rf"boxes\.csv has no column '{column}' in its first line"):
        fetch("detection", str(photographs), home)


def test_images_without_boxes_are_background(photographs: Path, home: Path):
    lines = read_lines(photographs)
    lines[1][-4:] = [""] * 4  # said by the CSV
    write_table(photographs / "boxes.csv", [*lines, [""] * len(lines[0])])  # and below it what a spreadsheet leaves
    Image.new("RGB", (20, 30)).save(photographs / "bare.png")  # not named by it
    found = fetch("detection", str(photographs), home)
    assert "2 image(s) without boxes" in found.notice
    data = open_boxes(found)
    items = [split.dataset[i] for split in (data.train, data.test) for i in range(len(split))]
    bare = [item for item in items if not len(item.boxes)]
    assert (len(items), len(bare)) == (6, 2)
    batch = collate(items)
    assert [len(item.boxes) for item in rows(batch)] == [len(item.boxes) for item in items]
    assert all(torch.equal(a.image, b.image) for a, b in zip(rows(batch), items, strict=True))


@pytest.mark.parametrize(("mode", "value"), [("L", 128), ("RGBA", (128, 128, 128, 255)), ("P", 128), ("I;16", 32896)])
def test_images_of_other_modes_are_read_as_rgb(photographs: Path, home: Path, mode: str, value: object):
    image = Image.new("L", (WIDTH, HEIGHT), 128).convert("P") if mode == "P" else None
    (image or Image.new(mode, (WIDTH, HEIGHT), value)).save(photographs / "images" / "1.png")
    data = open_boxes(fetch("detection", str(photographs), home))
    items = [split.dataset[i] for split in (data.train, data.test) for i in range(len(split))]
    (found,) = (item for item in items if float(item.boxes[0, 2]) == 31)
    assert torch.equal(found.image, torch.full((3, HEIGHT, WIDTH), 128 / 255))


def test_an_image_that_is_cut_off_is_named(photographs: Path, home: Path):
    image = photographs / "images" / "1.png"
    image.write_bytes(image.read_bytes()[:500])
    with pytest.raises(DataError, match=r"images/1\.png is unreadable or cut off"):
        fetch("detection", str(photographs), home)


def test_an_empty_test_set_is_refused(tmp_path: Path, home: Path):
    with pytest.raises(DataError, match=r"has boxes on 1 image\(s\), which leaves none for the test"):
        fetch("detection", str(write_photographs(tmp_path / "one", count=1)), home)


def test_of_several_tables_one_must_be_named(photographs: Path, home: Path):
    (photographs / "more.csv").write_bytes((photographs / "boxes.csv").read_bytes())
    with pytest.raises(DataError, match=r"2 CSV files \(boxes\.csv, more\.csv\): name the one .*#boxes=boxes\.csv"):
        fetch("detection", str(photographs), home)
    assert fetch("detection", f"{photographs}#boxes=more.csv", home).train_count == 4
    with pytest.raises(UsageError, match=r"'none\.csv' behind #boxes= is no file or folder"):
        fetch("detection", f"{photographs}#boxes=none.csv", home)
    with pytest.raises(UsageError, match=r" behind #boxes= is no file or folder"):
        fetch("detection", f"{photographs}#boxes={home.parent}", home)
    (photographs / "train.csv").write_bytes((photographs / "boxes.csv").read_bytes())
    (photographs / "classes.csv").write_text("id,name\n0,cat\n")
    photographs = photographs.rename(photographs.parent / "to train on")  # says nothing of the files in it
    for likely, gone in (("train", ("train", "more")), ("boxes", ("boxes", "classes"))):
        with pytest.raises(DataError, match=rf"#boxes={likely}\.csv"):
            fetch("detection", str(photographs), home)
        for name in gone:
            (photographs / f"{name}.csv").unlink()
    with pytest.raises(DataError, match="holds no boxes in a form that is read: add a CSV, COCO's JSON, Pascal"):
        fetch("detection", str(photographs), home)


def test_the_side_of_the_images_stands_behind_the_place(photographs: Path, home: Path):
    plain = open_boxes(fetch("detection", str(photographs), home))
    other = fetch("detection", f"{photographs}#side=800#boxes=boxes.csv", home)
    assert (plain.side, open_boxes(other).side) == (None, 800)
    assert verify("detection", f"{photographs}#side=800#boxes=boxes.csv", home) == other
    for wrong in ("12", "many", "99999"):
        with pytest.raises(UsageError, match=rf"'{wrong}' behind #side= is no side of an image: give 64 to 2048"):
            fetch("detection", f"{photographs}#side={wrong}", home)


def test_two_images_of_one_name_need_a_path(photographs: Path, home: Path):
    (photographs / "more").mkdir()
    (photographs / "more" / "2.png").write_bytes((photographs / "images" / "2.png").read_bytes())
    with pytest.raises(DataError, match=r"line 4: 2 images are called '2\.png'"):
        fetch("detection", str(photographs), home)


def test_an_image_with_a_suffix_that_is_not_read_is_told_as_such(photographs: Path, home: Path):
    image = photographs / "images" / "1.png"
    image.rename(image.with_suffix(".avif"))
    lines = read_lines(photographs)
    lines[2][0] = "images/1.avif"
    write_table(photographs / "boxes.csv", lines)
    with pytest.raises(DataError, match=r"line 3: 'images/1\.avif' has none of the suffixes .*png.*: rename the file"):
        fetch("detection", str(photographs), home)


def test_a_box_goes_to_no_image_of_another_folder(photographs: Path, home: Path):
    lines = read_lines(photographs)
    lines[1][0], lines[2][0] = f"images/{lines[1][0]}", f"elsewhere/{lines[2][0]}"
    write_table(photographs / "boxes.csv", lines)
    with pytest.raises(DataError, match=r"line 3: no image 'elsewhere/1\.png' is in"):
        fetch("detection", str(photographs), home)
    # Where none of the CSV's folders is here, they are those of another machine.
    lines[1][0] = "far/away/0.png"
    write_table(photographs / "boxes.csv", lines)
    assert fetch("detection", str(photographs), home).train_count == 4


def test_a_limit_keeps_a_part_of_the_images(home: Path, tmp_path: Path):
    more = fetch("detection", str(write_photographs(tmp_path / "more", count=40)), home)
    kept = open_boxes(more, limit_train=10)
    assert len(kept.train) == 10
    assert set(kept.train.dataset.names) < set(open_boxes(more).train.dataset.names)
    assert (more.train_count, more.test_count) == (32, 8)


def test_places_that_have_no_boxes_are_refused(photographs: Path, home: Path):
    for place in ("s3://bucket/x", "official", "https://example.org/folder"):
        with pytest.raises(UsageError, match="is no source of boxes"):
            fetch("detection", place, home)
    with pytest.raises(UsageError, match="not pushed"):
        push("detection", str(photographs), home, "s3://bucket/x")
    with pytest.raises(DataError, match="does not exist"):
        fetch("detection", str(photographs / "none"), home)


def test_without_data_shapes_are_drawn_and_said_to_be(home: Path):
    entry = find_workload("detection")
    found = fetch("detection", "auto", home)
    assert found.kind == "synthetic"
    assert "GENERATED STAND-IN" in found.notice
    assert found.train_count + found.test_count == entry.train_count + entry.test_count
    assert found.classes == ("disc", "square")


def test_the_stand_in_is_the_same_everywhere(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        draw_shapes(tmp_path / name, 3)
    assert (tmp_path / "a" / "shapes.csv").read_bytes() == (tmp_path / "b" / "shapes.csv").read_bytes()
    one, other = (np.asarray(Image.open(tmp_path / name / "0001.png")) for name in ("a", "b"))
    assert np.array_equal(one, other)
