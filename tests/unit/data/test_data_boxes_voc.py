"""Boxes in Pascal VOC's XML, a file for each image: what they come to, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from box_samples import HEIGHT, WIDTH, as_voc
from PIL import Image

from laptime.data.boxes.store import read_box_meta
from laptime.data.fetch import fetch
from laptime.errors import DataError


def change(path: Path, old: str, new: str) -> None:
    body = path.read_text()
    assert old in body
    path.write_text(body.replace(old, new, 1))


@pytest.mark.parametrize("to", ["Annotations", "images", "VOC2012/Annotations"])
def test_boxes_are_those_of_the_csv(photographs: Path, home: Path, to: str):
    plain = fetch("detection", str(photographs), home)
    as_voc(photographs, to)
    (photographs / "images.xml").write_text("<annotations><image/></annotations>")  # of another tool
    assert fetch("detection", str(photographs), home).digest == plain.digest
    change(photographs / to / "1.xml", "<xmin>5", "<xmin>6")  # the state of the files is a part of the folder's
    assert fetch("detection", str(photographs), home).digest != plain.digest


def test_masks_and_images_without_a_file_are_no_background(photographs: Path, home: Path):
    as_voc(photographs)
    (photographs / "SegmentationClass").mkdir()
    Image.new("L", (WIDTH, HEIGHT)).save(photographs / "SegmentationClass" / "1.png")
    (photographs / "images" / "1.png").rename(photographs / "images" / "1.bmp")  # the name in the file is older
    Image.new("RGB", (WIDTH, HEIGHT)).save(photographs / "images" / "later.png")
    change(photographs / "Annotations" / "1.xml", "1.png</f", "1.bmp</f")
    change(photographs / "Annotations" / "2.xml", "2.png</f", "old name</f")
    found = fetch("detection", str(photographs), home)
    meta = read_box_meta(Path(found.path))
    assert {*meta.train, *meta.test} == {"images/1.bmp", *(f"images/{i}.png" for i in (0, 2, 3, 4))}
    assert "2 image(s) that no annotation names are left out." in found.notice


def test_what_was_left_out_and_what_is_difficult_is_told(photographs: Path, home: Path):
    files = as_voc(photographs) / "Annotations"
    change(files / "0.xml", "<bndbox>", "<difficult>1</difficult><bndbox>")
    change(files / "1.xml", "<xmax>31", "<xmax>5")
    change(files / "2.xml", "<ymax>40", "<ymax>40.9")
    change(files / "4.xml", "<object>", "<thing>")
    change(files / "4.xml", "</object>", "</thing>")
    notice = fetch("detection", str(photographs), home).notice
    assert (
        "Boxes are those of 5 XML file(s) (Pascal VOC's form). 1 box(es) marked as difficult are boxes as any other"
        in notice
    )
    assert "1 box(es) without an area are left out. 1 box(es) that reach beyond the edge" in notice
    assert "2 image(s) without boxes are taken as background." in notice


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<xmin>5", "<xmin>five", r"Annotations/1\.xml, object 1: xmin is 'five': give a number of pixels"),
        ("<xmin>5</xmin>", "", r"object 1: xmin is ''"),
        ("<xmin>5", "<xmin>inf", r"object 1: xmin is 'inf'"),
        ("<xmin>5", "<xmin>50", r"object 1: xmax 31 is not above xmin 50: correct or remove it"),
        ("<xmax>31", "<xmax>62", r"object 1: xmax 62 is outside of images/1\.png, which is 60x40"),
        ("<name>cat", "<name> ", r"object 1: it names no class: fill in name"),
        ("</annotation>", "", r"1\.xml is no XML \(.*\): give Pascal VOC's form"),
        ("<annotation ", "<annotation xmlns='http://x' ", r"1\.xml begins with '\{http://x\}annotation': give Pascal"),
        ("<annotation ", "<!DOCTYPE a [<!ENTITY b 'c'>]><annotation ", r"1\.xml declares entities"),
        ("<annotation ", "<?xml version='1.0' encoding='none'?><annotation ", r"1\.xml is no XML"),
    ],
)
def test_a_file_that_says_no_box_is_named(photographs: Path, home: Path, old: str, new: str, said: str):
    change(as_voc(photographs) / "Annotations" / "1.xml", old, new)
    with pytest.raises(DataError, match=said):
        fetch("detection", str(photographs), home)


def test_a_file_without_its_image_is_named(photographs: Path, home: Path):
    (as_voc(photographs) / "images" / "1.png").unlink()
    with pytest.raises(DataError, match=r"Annotations/1\.xml: no image '1\.png' is in"):
        fetch("detection", str(photographs), home)
    change(photographs / "Annotations" / "1.xml", "<filename>1.png</filename>", "")
    with pytest.raises(DataError, match=r"Annotations/1\.xml is for no image of .*: add 1\.jpg, or remove the file"):
        fetch("detection", str(photographs), home)


def test_of_two_files_for_an_image_and_two_images_for_a_file_one_is_asked_for(photographs: Path, home: Path):
    plain = fetch("detection", str(photographs), home)
    table = (photographs / "boxes.csv").read_bytes()
    as_voc(photographs, "old")
    (photographs / "boxes.csv").write_bytes(table)
    as_voc(photographs)
    with pytest.raises(DataError, match=r"Annotations/0\.xml and .*old/0\.xml both say the boxes of .*images/0\.png"):
        fetch("detection", str(photographs), home)
    assert fetch("detection", f"{photographs}#boxes=old", home).digest == plain.digest
    (photographs / "more-images").mkdir()
    Image.new("L", (WIDTH, HEIGHT)).save(photographs / "more-images" / "1.png")
    with pytest.raises(DataError, match=r"old/1\.xml may stand for 2 images \(.*\): keep one, or bring"):
        fetch("detection", f"{photographs}#boxes=old", home)
