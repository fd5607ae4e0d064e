"""Sets of boxes that say themselves what is training and what is test: by files of boxes, a column and folders."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from box_samples import (
    HEIGHT,
    WIDTH,
    as_voc,
    as_yolo,
    coco_parts,
    csv_column,
    csv_parts,
    numbers_of,
    read_lines,
    sort_files,
    write_table,
)
from data_samples import left_over, stores
from PIL import Image

from laptime.data.fetch import fetch, verify
from laptime.errors import DataError, UsageError

OWN = ({0, 1, 2, 3, 4}, {8, 9})


def roboflow_voc(root: Path) -> Path:
    return sort_files(as_voc(root, "images"), {"images/*": "{part}"})


def roboflow_coco(root: Path) -> Path:
    return sort_files(coco_parts(root, "{part}/_annotations.coco.json"), {"images/*": "{part}"})


def yolo_folders(root: Path) -> Path:
    return sort_files(as_yolo(root), {"images/*.png": "images/{part}", "labels/*.txt": "labels/{part}"})


FORMS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "TensorFlow's CSVs": (
        lambda root: csv_parts(root, "data/{part}_labels.csv"),
        "(data/train_labels.csv, data/test_labels.csv)",
    ),
    "Roboflow's CSVs": (
        lambda root: sort_files(csv_parts(root, "{part}/_annotations.csv"), {"images/*": "{part}"}),
        "(train/_annotations.csv, test/_annotations.csv)",
    ),
    "a column": (csv_column, "(train, test of boxes.csv)"),
    "a column in capitals": (lambda root: csv_column(root, "Subset", str.upper), "(train, test of boxes.csv)"),
    "Roboflow's COCO": (roboflow_coco, "(train/_annotations.coco.json, test/_annotations.coco.json)"),
    "COCO's own": (
        lambda root: sort_files(coco_parts(root, "annotations/instances_{part}2017.json"), {"images/*": "{part}2017"}),
        "(annotations/instances_train2017.json, annotations/instances_test2017.json)",
    ),
    "Roboflow's VOC": (roboflow_voc, "(train, test)"),
    "one CSV and folders": (
        lambda root: sort_files(root, {"images/*": "parts/{part}_set"}),
        "(parts/train_set, parts/test_set)",
    ),
    "YOLO's images/train": (yolo_folders, "(images/train, images/test)"),
    "YOLO's train/images": (
        lambda root: sort_files(as_yolo(root), {"images/*": "{part}/images", "labels/*": "{part}/labels"}),
        "(train, test)",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_split_of_each_form_is_followed(ten: Path, home: Path, form: str):
    make, said = FORMS[form]
    found = fetch("detection", str(make(ten)), home)
    assert numbers_of(found) == OWN
    assert f"The split is the set's own {said}" in found.notice
    assert re.search(
        r"5 image\(s\) to train on, 2 as the test\. \S*valid\S* \(3 image\(s\)\) left aside, ", found.notice
    )
    assert "always the same" not in found.notice
    assert "that only" not in found.notice
    assert verify("detection", str(ten), home) == found
    lines = {line[0] for line in read_lines(Path(found.path))[1:]}
    assert {int(Path(str(name)).stem) for name in lines} == OWN[0] | OWN[1]
    with pytest.raises(
        UsageError, match=r"is split already \(.*train.*, .*test.*\), so there is nothing for #seed=3 to c"
    ):
        fetch("detection", f"{ten}#seed=3", home)


def test_an_archive_has_the_split_of_its_folder(ten: Path, home: Path, tmp_path: Path):
    with tarfile.open(tmp_path / "ten.tar", "w") as tar:
        tar.add(roboflow_coco(ten), "ten")
    assert fetch("detection", str(tmp_path / "ten.tar"), home).digest == fetch("detection", str(ten), home).digest
    with pytest.raises(UsageError, match=rf"{tmp_path / 'ten.tar'}/ten is split already \(train/_annotations"):
        fetch("detection", f"{tmp_path / 'ten.tar'}#seed=1", home)


@pytest.mark.parametrize(("chosen", "count"), [("train/_annotations.csv", 5), ("valid/_annotations.csv", 3)])
def test_of_a_file_that_is_chosen_a_fifth_is_the_test(ten: Path, home: Path, chosen: str, count: int):
    FORMS["Roboflow's CSVs"][0](ten)
    found = fetch("detection", f"{ten}#boxes={chosen}#seed=1", home)
    assert (found.train_count, found.test_count) == (count - 1, 1)
    assert "the set's own" not in found.notice
    assert "A fifth of the images, by seed 1, is kept for the test." in found.notice


def test_of_a_folder_that_is_chosen_whole_a_fifth_is_the_test(ten: Path, home: Path):
    found = fetch("detection", f"{yolo_folders(ten)}#boxes=labels", home)
    assert (found.train_count, found.test_count) == (8, 2)
    assert "the set's own" not in found.notice


@pytest.mark.parametrize("parts", [{"train": range(10)}, {"test": range(10)}, {"val": range(5), "test": range(5, 10)}])
def test_where_a_set_says_one_side_alone_a_fifth_is_drawn(ten: Path, home: Path, parts: dict[str, range]):
    plain = fetch("detection", str(ten), home)
    sort_files(ten, {"images/*": "{part}"}, parts)
    found = fetch("detection", str(ten), home)
    assert (found.train_count, found.test_count) == (plain.train_count, plain.test_count)
    assert "split" not in found.notice


def test_of_several_tests_the_first_that_has_boxes_is_taken(ten: Path, home: Path):
    roboflow_voc(ten)
    for path in (ten / "test").glob("*.xml"):
        path.unlink()
    found = fetch("detection", str(ten), home)
    assert numbers_of(found) == ({0, 1, 2, 3, 4}, {5, 6, 7})
    assert "(train, valid): 5 image(s) to train on, 3 as the test. No image of test has boxes." in found.notice
    assert "2 image(s) that no annotation names are left out." in found.notice
    assert "left aside" not in found.notice


def test_a_file_whose_lines_say_no_box_is_no_test(ten: Path, home: Path):
    csv_parts(ten, "{part}.csv")
    lines = [line.split(",") for line in (ten / "test.csv").read_text().splitlines()]
    write_table(ten / "test.csv", [lines[0], *([*line[:4], "", "", "", ""] for line in lines[1:])])
    found = fetch("detection", str(ten), home)
    assert numbers_of(found) == ({0, 1, 2, 3, 4}, {5, 6, 7})
    assert "(train.csv, valid.csv): 5 image(s) to train on, 3 as the test. No image of test.csv has b" in found.notice


def test_of_several_tests_the_order_is_that_of_folders_of_images(ten: Path, home: Path):
    sort_files(ten, {"images/*": "{part}"}, {"train": range(5), "dev": range(5, 8), "test": range(8, 10)})
    found = fetch("detection", str(ten), home)
    assert numbers_of(found) == OWN
    assert "dev (3 image(s)) left aside, test is the test." in found.notice


def test_where_no_test_has_boxes_a_fifth_of_the_training_is_drawn(ten: Path, home: Path):
    sort_files(ten, {"images/*": "{part}"})
    write_table(ten / "boxes.csv", read_lines(ten)[:6])
    found = fetch("detection", str(ten), home)
    train, test = numbers_of(found)
    assert (train | test, len(test)) == ({0, 1, 2, 3, 4}, 1)  # not those that nobody has looked at
    assert "No image of test, valid has boxes, so a fifth of train, always the same (#seed=1" in found.notice
    assert "taken as background" not in found.notice
    assert "so a fifth of train, by seed 2, is" in fetch("detection", f"{ten}#seed=2", home).notice


def test_a_training_without_boxes_is_refused(ten: Path, home: Path):
    sort_files(ten, {"images/*": "{part}"})
    head, *lines = read_lines(ten)
    write_table(ten / "boxes.csv", [head, *lines[5:]])
    with pytest.raises(
        DataError, match=r"train, the training of .*, has no image with boxes: add them, or give a file"
    ):
        fetch("detection", str(ten), home)
    assert stores(home) == left_over(home) == []


def test_an_image_on_both_sides_is_refused(ten: Path, home: Path):
    parts = {"train": range(6), "test": range(5, 10)}
    csv_parts(ten, "{part}_labels.csv", parts)
    with pytest.raises(DataError) as caught:
        fetch("detection", str(ten), home)
    for said in (
        f"{ten} has 1 image(s), images/5.png among them, in train_labels.csv and in test_labels.csv, whose test",
        "take them out of one, or give a file or folder of boxes behind #boxes=, of which a fifth is then kept for the",
    ):
        assert said in str(caught.value)
    assert fetch("detection", f"{ten}#boxes=train_labels.csv", home).train_count == 5


def test_copies_on_both_sides_are_told(ten: Path, home: Path):
    roboflow_voc(ten)
    shutil.copy(ten / "train" / "2.png", ten / "test" / "8.png")
    assert (
        "1 image(s) of the test, test/8.png among them, are in the training, too."
        in fetch("detection", str(ten), home).notice
    )


def test_copies_in_a_set_whose_fifth_is_drawn_are_told(ten: Path, home: Path):
    for number in range(1, 10):
        shutil.copy(ten / "images" / "0.png", ten / "images" / f"{number}.png")
    assert "2 image(s) of the test, " in fetch("detection", str(ten), home).notice


def test_classes_of_one_side_and_of_a_part_that_is_left_aside(ten: Path, home: Path):
    head, *lines = read_lines(ten)
    for number, name in ((1, "learnt"), (6, "aside"), (9, "judged")):
        lines[number][head.index("class")] = name
    write_table(ten / "boxes.csv", [head, *lines])
    found = fetch("detection", str(csv_column(ten)), home)
    assert found.classes == ("cat", "dog", "judged", "learnt")
    assert "training images alone, so the test says nothing of them: cat, learnt." in found.notice
    assert "test images alone, so nothing is learnt of them: judged." in found.notice


def test_an_image_that_no_csv_names_is_background_of_the_part_in_whose_folder_it_is(ten: Path, home: Path):
    FORMS["Roboflow's CSVs"][0](ten)
    for name in ("train/20", "test/21", "valid/22", "23"):
        Image.new("RGB", (WIDTH, HEIGHT)).save(ten / f"{name}.png")
    found = fetch("detection", str(ten), home)
    assert numbers_of(found) == ({0, 1, 2, 3, 4, 20}, {8, 9, 21})
    assert "2 image(s) without boxes are taken as background." in found.notice
    assert "2 image(s) outside of these parts are left out." in found.notice


def test_an_image_that_no_csv_names_in_a_folder_of_both_parts_is_left_out(ten: Path, home: Path):
    Image.new("RGB", (WIDTH, HEIGHT)).save(ten / "images" / "20.png")
    found = fetch("detection", str(csv_column(ten)), home)
    assert numbers_of(found) == OWN
    assert "1 image(s) outside of these parts are left out." in found.notice


def test_a_line_that_says_no_part_is_named(ten: Path, home: Path):
    csv_column(ten, "set", lambda part: part[:1])  # a column of other meaning
    found = fetch("detection", str(ten), home)
    assert (found.train_count, found.test_count, found.notice) == (8, 2, "")
    write_table(ten / "boxes.csv", [line[:-1] for line in read_lines(ten)])
    csv_column(ten, of=lambda part: part.replace("valid", "odd"))
    with pytest.raises(
        DataError, match=r"boxes\.csv, line 7: its split is 'odd', where other lines say train and test: "
    ):
        fetch("detection", str(ten), home)
