"""A plan that is not run says of the data's place what the ladder would say, and writes and decodes nothing."""

from __future__ import annotations

import json
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from laptime.cli import app
from laptime.data.fetch import fetch
from laptime.errors import LaptimeError
from laptime.ladder.data import look_at_data
from laptime.places import find_places


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def images(tmp_path):
    """Two classes of two images that no decoder reads, since a look reads none."""
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(b"no image")
    return tmp_path / "photos"


@pytest.fixture
def boxes(tmp_path):
    """A photograph, and a CSV whose lines a look doesn't read."""
    (tmp_path / "boxed").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "boxed" / "a.jpg")
    (tmp_path / "boxed" / "boxes.csv").write_text("filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,1,1,9,900\n")
    return tmp_path / "boxed"


def look(workload, asked):
    return look_at_data(workload, str(asked), find_places())


@pytest.mark.parametrize("command", ["optimize", "tune"])
def test_a_plan_for_data_that_are_not_there_is_refused(command, home, tmp_path):
    done = CliRunner().invoke(app, [command, "cifar", "--device=cpu", "--dry-run", "--data", str(tmp_path / "gone")])
    assert isinstance(done.exception, LaptimeError)
    assert f"the data folder '{tmp_path / 'gone'}' does not exist" in str(done.exception)
    assert "Expected duration" not in done.output
    assert not home.exists()


@pytest.mark.parametrize(
    ("workload", "behind"),
    [("cifar", ""), ("cifar", "#seed=1"), ("cifar", "#size=64"), ("eurosat", "")],
)
def test_a_folder_of_classes_passes_by_its_names(workload, behind, home, images):
    look(workload, f"{images}{behind}")
    assert not home.exists()


@pytest.mark.parametrize("behind", ["", "#boxes=boxes.csv", "#side=200#seed=2"])
def test_a_folder_with_boxes_passes_by_its_names(behind, home, boxes):
    look("detection", f"{boxes}{behind}")
    assert not home.exists()


@pytest.mark.parametrize(
    ("workload", "place"),
    [
        ("cifar", "{images}#size=1"),
        ("cifar", "{images}#side=200"),
        ("cifar", "{images}/cat"),
        ("cifar", "auto#size=64"),
        ("cifar", "ftp://host/photos"),
        ("eurosat", "{images}#bands=0"),
        ("detection", "{boxes}#boxes=labels.csv"),
        ("detection", "{boxes}#side=1"),
        ("detection", "{boxes}/a.jpg/b"),
        ("detection", "official"),
    ],
)
def test_what_is_refused_is_refused_in_the_words_of_the_fetch(workload, place, home, images, boxes, tmp_path):
    asked = place.format(images=images, boxes=boxes)
    with pytest.raises(LaptimeError) as looked:
        look(workload, asked)
    with pytest.raises(type(looked.value)) as fetched:
        fetch(workload, asked, tmp_path / "other")
    assert str(looked.value) == str(fetched.value)
    assert not home.exists()


def test_a_store_is_asked_what_it_was_made_of(home, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (32, 32), (90 * number, 0, len(name))).save(tmp_path / "photos" / name / f"{number}.png")
    store = fetch("cifar", str(tmp_path / "photos"), tmp_path / "other").path
    assert look("cifar", store) == (2, 2)
    with pytest.raises(LaptimeError, match="holds images of 32x32"):
        look("cifar", f"{store}#size=64")


def test_images_are_counted_by_names_or_by_what_is_stored(home, tmp_path):
    for number in range(6):
        for name in ("train/cat", "train/dog", *(["test/cat", "test/dog"] if number < 2 else ())):
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (32, 32), (40 * number, 0, len(name)))
            image.save(tmp_path / "photos" / name / f"{number}.png")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "photos")
    assert look("cifar", tmp_path / "photos") == (12, 4)
    assert look("cifar", packed) is None
    fetch("cifar", packed, home)
    assert look("cifar", packed) == (12, 4)


def test_photographs_with_boxes_are_counted_once_they_are_stored(home, boxes):
    assert look("detection", boxes) is None
    lines = [f"{name}.jpg,cat,1,1,9,9" for name in "abcde"]
    for name in "bcde":
        Image.new("RGB", (64, 48), (ord(name), 0, 0)).save(boxes / f"{name}.jpg")
    (boxes / "boxes.csv").write_text("\n".join(["filename,class,xmin,ymin,xmax,ymax", *lines]))
    stored = fetch("detection", str(boxes), home)
    assert look("detection", boxes) == look("detection", stored.path) == (4, 1)


def test_a_plan_reckons_with_the_images_that_are_there(home, images):
    plan = ["optimize", "cifar", "--device=cpu", "--variants=cpu-baseline", "--dry-run", "--json", "--data"]
    many, few = (json.loads(CliRunner().invoke(app, [*plan, d]).output)["seconds"] for d in ("synthetic", str(images)))
    assert few < 11 + 3 * 8 + 1 < many


def test_a_training_of_ones_own_takes_no_place(home, tmp_path):
    (tmp_path / "mine.py").touch()
    with pytest.raises(LaptimeError, match="which brings its own data: leave it out"):
        look(f"{tmp_path / 'mine.py'}:workload", "photos")
