"""Boxes in COCO's JSON: what they come to, what of them is left out, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from box_samples import HEIGHT, WIDTH, coco_of, read_lines, write_json
from PIL import Image

from laptime.data.boxes.store import read_box_meta
from laptime.data.fetch import fetch
from laptime.errors import DataError


@pytest.fixture
def coco(photographs: Path) -> dict[str, Any]:
    """COCO's form of the photographs, whose CSV is gone; not yet written."""
    found = coco_of(photographs)
    (photographs / "boxes.csv").unlink()
    return found


def test_boxes_are_those_of_the_csv(photographs: Path, home: Path):
    plain = fetch("detection", str(photographs), home)
    found = coco_of(photographs)
    found["annotations"][0]["image_id"] = 0.0  # as pandas writes it
    (photographs / "boxes.csv").rename(photographs / "boxes.txt")
    (photographs / "sizes.csv").write_text("filename,width\n1.png,60\n")  # says no boxes
    write_json(photographs, {"images": [], "annotations": [{"image_id": 1, "caption": "a cat"}]}, "captions.json")
    write_json(photographs, found, "annotations/boxes.json")
    assert fetch("detection", str(photographs), home).digest == plain.digest
    found["annotations"][0]["bbox"][2] += 1  # the state of the file is a part of the folder's
    write_json(photographs, found, "annotations/boxes.json")
    assert fetch("detection", str(photographs), home).digest != plain.digest


def test_of_several_files_one_must_be_named(photographs: Path, home: Path):
    parts = {"person_train": slice(3), "instances_train": slice(3), "instances_more": slice(3, None)}
    for name, part in parts.items():
        write_json(photographs, coco_of(photographs, part), f"annotations/{name}.json")
    (photographs / "boxes.csv").unlink()
    with pytest.raises(DataError, match=r"3 JSON files of boxes .*#boxes=annotations/instances_train\.json"):
        fetch("detection", str(photographs), home)
    found = fetch("detection", f"{photographs}#boxes=annotations/instances_train.json", home)
    meta = read_box_meta(Path(found.path))
    assert {*meta.train, *meta.test} == {f"images/{i}.png" for i in range(3)}
    assert "2 image(s) that only annotations/instances_more.json names are left out." in found.notice


def test_what_is_no_box_to_train_on_is_left_out_and_told(photographs: Path, home: Path, coco: dict[str, Any]):
    first, second, third, *_ = coco["annotations"]
    coco["annotations"] += [first | {"iscrowd": 1, "segmentation": {"counts": [], "size": []}}]
    second["bbox"][2] = 0
    third["bbox"] = [-0.4, 3, WIDTH + 0.8, 20]
    Image.new("RGB", (20, 30)).save(photographs / "images" / "unlabelled.png")
    found = fetch("detection", str(write_json(photographs, coco)), home)
    for said in (
        "Boxes are those of boxes.json (COCO's form). 1 box(es) around a crowd (iscrowd) are left out",
        "1 box(es) without an area are left out.",
        "1 box(es) that reach beyond the edge by a pixel at most are cut there.",
        "1 image(s) without boxes are taken as background.",
        "1 image(s) that no annotation names are left out.",
    ):
        assert said in found.notice
    lines = {line[0]: line[2:] for line in read_lines(Path(found.path))}
    assert (lines["images/1.png"], lines["images/2.png"]) == ([""] * 4, ["0", "3", "60", "23"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image_id": 99}, "boxes.json, annotation 501: its image_id 99 is not among images"),
        ({"category_id": "7"}, "boxes.json, annotation 501: its category_id '7' is not among categories"),
        ({"bbox": None}, "annotation 501: its bbox is None: give left, top, width and height in pixels"),
        ({"bbox": [1, 2, "3", 4]}, "annotation 501: its bbox is [1, 2, '3', 4]"),
        ({"bbox": [1, 2, 3, float("nan")]}, "annotation 501: its bbox is [1, 2, 3, nan]"),
        ({"bbox": [5, 5, 58, 30]}, "annotation 501: xmax 63 is outside of images/1.png, which is 60x40"),
    ],
)
def test_an_annotation_that_is_no_box_is_named(
    photographs: Path, home: Path, coco: dict[str, Any], change: dict[str, Any], said: str
):
    coco["annotations"][1] |= change
    with pytest.raises(DataError) as caught:
        fetch("detection", str(write_json(photographs, coco)), home)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("part", "entry", "said"),
    [
        ("images", {"id": 9, "file_name": "9.png"}, r"boxes\.json, image 9: no image '9\.png' is in"),
        ("images", {"id": 1, "file_name": "1.png"}, "has two images of one id"),
        ("images", {"id": 9}, "image 9: it has no file_name: give it one, as text"),
        ("images", {"file_name": "9.png"}, r"has an entry \(image\) without an id \(\{'file_name': '9\.png'\}\)"),
        ("categories", {"id": 9, "name": 5}, "category 9: it has no name"),
        ("categories", "cat", "has no list of objects 'categories': give COCO's form"),
    ],
)
def test_images_and_categories_that_say_too_little_are_named(
    photographs: Path, home: Path, coco: dict[str, Any], part: str, entry: object, said: str
):
    coco[part].append(entry)
    with pytest.raises(DataError, match=said):
        fetch("detection", str(write_json(photographs, coco)), home)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_named_and_is_not_of_that_form_is_told(photographs: Path, home: Path, body: bytes):
    (photographs / "a.json").write_bytes(body)
    why = r"a\.json (is no JSON .*|is a bare list of 0 item\(s\), which says no images and classes): give COCO's form"
    with pytest.raises(DataError, match=why):
        fetch("detection", f"{photographs}#boxes=a.json", home)


def test_boxes_that_are_shares_of_the_image_are_told(photographs: Path, home: Path, coco: dict[str, Any]):
    for entry in coco["annotations"]:
        entry["bbox"] = [0.1, 0.2, 0.5, 0.5]
    with pytest.raises(DataError, match=r"annotation 500: all boxes lie between 0 and 1, which are shares"):
        fetch("detection", str(write_json(photographs, coco)), home)


def test_a_photograph_that_lies_is_told(photographs: Path, home: Path, coco: dict[str, Any]):
    coco["images"][4] |= {"width": HEIGHT, "height": WIDTH}
    coco["annotations"][4]["bbox"] = [5, 4, 30, 55]
    with pytest.raises(DataError, match=r"4\.png, which is 60x40 and not what its annotations say \(remove the EXIF"):
        fetch("detection", str(write_json(photographs, coco)), home)
