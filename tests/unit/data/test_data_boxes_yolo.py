"""Boxes in YOLO's text files: what they come to, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from box_samples import HEIGHT, WIDTH, YAML, as_yolo, read_lines
from PIL import Image

from laptime.data.fetch import fetch
from laptime.errors import DataError


def stored(place: str, home: Path) -> dict[str, list[object]]:
    found = fetch("detection", place, home)
    return {str(name): rest for name, *rest in read_lines(Path(found.path))[1:]}


def test_boxes_are_those_of_the_csv(photographs: Path, home: Path):
    plain = stored(str(photographs), home)
    as_yolo(photographs)
    (photographs / "README.txt").write_text("five words are not enough")
    (photographs / "train.txt").write_text("./images/0.png\n./images/1.png\n")
    for names in ("[dog, cat]", "{0: dog, 1: cat}", "\n  0: dog\n  1: cat", "\n- dog\n- 'cat'"):
        (photographs / "data.yaml").write_text(YAML.format(names))
        found = stored(str(photographs), home)
        assert {name: label for name, (label, *_) in found.items()} == {n: label for n, (label, *_) in plain.items()}
        for name, (_, *sides) in found.items():
            assert np.allclose([float(str(s)) for s in sides], [float(str(s)) for s in plain[name][1:]], atol=1e-4)


def test_a_class_may_be_called_as_a_truth_value(photographs: Path, home: Path):
    (as_yolo(photographs) / "data.yaml").write_text(YAML.format("[no, 007]"))
    assert fetch("detection", str(photographs), home).classes == ("007", "no")


@pytest.mark.parametrize("file", ["classes.txt", "images/classes.txt", "obj.names", "train/_darknet.labels"])
def test_names_may_be_a_list_beside_the_images(photographs: Path, home: Path, file: str):
    as_yolo(photographs, "images")
    (photographs / "data.yaml").unlink()
    with pytest.raises(DataError, match="holds no names of the classes that the text files number: give them in data"):
        fetch("detection", str(photographs), home)
    (photographs / file).parent.mkdir(exist_ok=True)
    (photographs / file).write_text("dog \ncat\n")
    assert fetch("detection", str(photographs), home).classes == ("cat", "dog")
    (photographs / "more.names").write_text("cat\ndog\n")
    with pytest.raises(DataError, match="name the classes differently: keep one of them"):
        fetch("detection", str(photographs), home)


def test_parts_are_followed_or_one_is_read_by_its_folder(photographs: Path, home: Path):
    as_yolo(photographs)
    for part, numbers in (("train", (0, 1, 2)), ("val", (3, 4))):
        for folder, suffix in (("images", "png"), ("labels", "txt")):
            (photographs / folder / part).mkdir()
            for number in numbers:
                (photographs / folder / f"{number}.{suffix}").rename(photographs / folder / part / f"{number}.{suffix}")
    for folder, name in (("images/train", "bare"), ("images/test", "secret"), ("images/val", "0")):
        (photographs / folder).mkdir(exist_ok=True)
        Image.new("RGB", (WIDTH, HEIGHT)).save(photographs / folder / f"{name}.png")
    found = fetch("detection", str(photographs), home)
    assert "(images/train, images/val): 4 image(s) to train on, 3 as the test. No image of images/te" in found.notice
    assert "1 image(s) that no annotation names are left out." in found.notice
    assert "2 image(s) without boxes are taken as background." in found.notice
    lines = stored(f"{photographs}#boxes=labels/train", home)
    assert lines.keys() == {*(f"images/train/{i}.png" for i in (0, 1, 2)), "images/train/bare.png"}
    assert lines["images/train/0.png"][0] == "dog"


def test_a_photograph_that_is_turned_is_measured_as_a_viewer_shows_it(photographs: Path, home: Path):
    as_yolo(photographs)
    (photographs / "images" / "0.png").unlink()
    image = Image.new("RGB", (WIDTH, HEIGHT))
    exif = image.getexif()
    exif[0x112] = 6
    image.save(photographs / "images" / "0.jpg", exif=exif)
    (photographs / "labels" / "0.txt").write_text("0 0.5 0.5 1 1")
    assert stored(str(photographs), home)["images/0.jpg"] == ["dog", "0", "0", str(HEIGHT), str(WIDTH)]


def test_what_is_changed_or_left_out_is_told(photographs: Path, home: Path):
    labels = as_yolo(photographs) / "labels"
    (labels / "0.txt").write_text("1 0.1 0.1 0.5 0.2 0.4 0.75\n\n0 0.5 0.5 0 0.5\n")
    (labels / "1.txt").write_text("")
    (labels / "2.txt").write_text("0 0.5 0.5 1.0005 1\n")
    found = fetch("detection", str(photographs), home)
    for said in (
        "(YOLO's form), the classes' names those of data.yaml. 1 polygon(s) are read as the boxes around them.",
        "1 box(es) without an area are left out.",
    ):
        assert said in found.notice
    lines = stored(str(photographs), home)
    assert (lines["images/0.png"], lines["images/1.png"][0]) == (["cat", "6", "4", "30", "30"], "")
    assert lines["images/2.png"][1:] == ["0", "0", "60", "40"]
    with (photographs / "data.yaml").open("a") as file:
        file.write("kpt_shape: [3, 2]\n")  # what were polygons are a box and points of a body
    (labels / "0.txt").write_text("1 0.5 0.5 0.5 0.5 0.4 0.75 900 2 2 2\n")
    assert stored(str(photographs), home)["images/0.png"] == ["cat", "15", "10", "45", "30"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 0.5 0.5 0.5", r"'0 0\.5 0\.5 0\.5' is no box: give the class's number, the centre"),
        ("0 0.5 0.5 0.5 0.5 0.9", "is no box"),
        ("0 0.5 0.5 0.5 wide", "is no box"),
        ("0 0.5 0.5 0.5 nan", "is no box"),
        ("0 30 20 10 10", r"30 is no share of the image, from 0 to 1: divide pixels by its width and height"),
        ("0 0.9 0.5 0.5 0.5", r"xmax 69 is outside of images/1\.png, which is 60x40"),
        ("0 0.5 0.5 -0.5 0.5", r"-0\.5 is no share of the image"),
        ("2 0.5 0.5 0.5 0.5", r"class 2 is none of the 2 that .*data\.yaml names: add it there"),
        ("0.5 0.5 0.5 0.5 0.5", r"class 0\.5 is none of the 2"),
        ("# no box", "'# no box' is no box"),
    ],
)
def test_a_line_that_is_no_box_is_named(photographs: Path, home: Path, line: str, said: str):
    (as_yolo(photographs) / "labels" / "1.txt").write_text(f"\n{line}\n0 0.5 0.5 0.5 0.5\n")
    with pytest.raises(DataError, match=rf"labels/1\.txt, line 2: .*{said}"):
        fetch("detection", str(photographs), home)


@pytest.mark.parametrize("body", ["names: [", "names: {a: b}", "names: {[]: b}"])
def test_names_that_cannot_be_read_are_told(photographs: Path, home: Path, body: str):
    (as_yolo(photographs) / "data.yaml").write_text(body)
    with pytest.raises(DataError, match=r"data\.yaml says no names of classes \(.*\): give them in data\.yaml"):
        fetch("detection", str(photographs), home)


def test_a_file_without_its_image_is_named(photographs: Path, home: Path):
    (as_yolo(photographs) / "images" / "1.png").unlink()
    with pytest.raises(DataError, match=r"labels/1\.txt is for no image of .*: add 1\.jpg, or remove the file"):
        fetch("detection", str(photographs), home)
