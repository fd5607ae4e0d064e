"""Folders that say no boxes, though something in them is like a form that is read: what is there, and what lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from box_samples import coco_of

from laptime.data.fetch import fetch
from laptime.errors import DataError

_CAPTIONS = [{"id": 1, "image_id": 1, "caption": "a cat"}]


@pytest.fixture
def bare(photographs: Path) -> Path:
    """Five images, called 0.png to 4.png, without their boxes."""
    (photographs / "boxes.csv").unlink()
    return photographs


def said(place: Path, home: Path) -> str:
    with pytest.raises(DataError) as caught:
        fetch("detection", str(place), home)
    return str(caught.value)


@pytest.mark.parametrize("without", [{"annotations": []}, {"annotations": None}, {"annotations": _CAPTIONS}])
def test_cocos_file_without_boxes(photographs: Path, home: Path, without: dict[str, object]):
    whole = coco_of(photographs) | without
    (photographs / "boxes.csv").unlink()
    (photographs / "a.json").write_text(json.dumps({key: part for key, part in whole.items() if part is not None}))
    lacks = "annotations of 5 image(s), none of which has a bbox" if without["annotations"] else "no annotations"
    assert f"{photographs / 'a.json'} " in said(photographs, home)
    assert lacks in said(photographs, home)


@pytest.mark.parametrize("place", ["{}", "{}#boxes=a.json"])
def test_a_bare_list(bare: Path, home: Path, place: str):
    (bare / "a.json").write_text(json.dumps([{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 0.5}]))
    found = said(Path(place.format(bare)), home)
    assert "a.json is a bare list of 1 item(s), which says no images and classes: give COCO's form" in found


@pytest.mark.parametrize(
    ("body", "lacks"),
    [
        ('{"images": [', "a.json is no JSON (Expecting value"),
        ("[", "holds no boxes in a form that is read"),
        ('{"shapes": [], "imagePath": "0.png"}', "holds no boxes in a form that is read"),
    ],
)
def test_only_what_is_like_cocos_form_is_told_of(bare: Path, home: Path, body: str, lacks: str):
    (bare / "a.json").write_text(body)
    assert lacks in said(bare, home)


def test_yolos_folder_without_boxes(bare: Path, home: Path):
    labels = bare / "part/labels"
    labels.mkdir(parents=True)
    (bare / "data.yaml").write_text("names: [cat]")
    assert f"{labels} holds no text file: add one for each image, called as it is" in said(bare, home)
    (labels / "10.txt").write_text("0 .5 .5 .1 .1\n")
    assert f"10.txt is for no image of {bare}: call each text file as its image, such as 10.jpg" in said(bare, home)
    (labels / "0.txt").touch()
    assert "has 1 text file(s) called as its images, all empty, so no boxes: write a line for" in said(bare, home)
    (labels / "1.txt").write_text("\ncat 1 2 3 4\n")
    assert "1.txt begins with 'cat 1 2 3 4', which is no box: write a line for each box" in said(bare, home)
