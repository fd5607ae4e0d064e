"""What belongs to a part of a set of boxes: several files of one part, names that stand twice, words in folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from box_samples import coco_of, coco_parts, numbers_of, read_lines, sort_files, write_json, write_table

from laptime.data.boxes.box import Box, Boxed
from laptime.data.boxes.match import Matched
from laptime.data.boxes.splits import by_folders
from laptime.data.fetch import fetch

OWN = ({0, 1, 2, 3, 4}, {8, 9})


def test_other_files_of_a_part_and_of_none_are_left_aside(ten: Path, home: Path):
    table = (ten / "boxes.csv").read_bytes()
    coco_parts(ten, "annotations/instances_{part}.json")
    (ten / "boxes.csv").write_bytes(table)
    coco_parts(ten, "annotations/person_keypoints_{part}.json", {"train": range(10), "test": range(10)})
    found = fetch("detection", str(ten), home)
    assert numbers_of(found) == OWN
    assert "left aside, annotations/instances_test.json is the test." in found.notice
    assert "Boxes are those of 2 files (COCO's form)." in found.notice


def test_files_of_one_part_in_two_folders_are_one_part(ten: Path, home: Path):
    head, *lines = read_lines(ten)
    (ten / "boxes.csv").unlink()
    for name, some in (("a/train", lines[:3]), ("b/train", lines[3:5]), ("a/test", lines[8:9]), ("b/test", lines[9:])):
        (ten / name).mkdir(parents=True)
        write_table(ten / name / "boxes.csv", [head, *some])
    found = fetch("detection", str(ten), home)
    assert numbers_of(found) == OWN
    assert "(a/train/boxes.csv, b/train/boxes.csv, a/test/boxes.csv, b/test/boxes.csv)" in found.notice


def test_photographs_of_one_name_are_those_of_their_part(ten: Path, home: Path):
    coco_parts(ten, "annotations/instances_{part}2017.json", {"train": range(5), "val": range(5, 10)})
    sort_files(ten, {"images/*": "{part}2017"}, {"train": range(5), "val": range(5, 10)})
    for number in range(5, 10):
        (ten / "val2017" / f"{number}.png").rename(ten / "val2017" / f"{number - 5}.png")
    table = ten / "annotations" / "instances_val2017.json"
    body = table.read_text("utf-8-sig")
    for number in range(5, 10):
        body = body.replace(f'"{number}.png"', f'"{number - 5}.png"')
    table.write_text(body)
    found = fetch("detection", str(ten), home)
    rights = {str(line[0]): line[4] for line in read_lines(Path(found.path))[1:]}
    assert rights == {f"{'train' if n < 5 else 'val'}2017/{n % 5}.png": str(30 + n) for n in range(10)}


def test_boxes_that_are_changed_in_two_files_are_counted_together(ten: Path, home: Path):
    for part, number in (("train", 0), ("test", 9)):
        found = coco_of(ten, slice(0, 5) if part == "train" else slice(8, 10))
        found["annotations"].append(found["annotations"][0] | {"id": 900 + number, "bbox": [1, 1, 0, 5]})
        write_json(ten, found, f"{part}/_annotations.coco.json")
    (ten / "boxes.csv").unlink()
    assert "2 box(es) without an area are left out." in fetch("detection", str(ten), home).notice


def images(*names: str) -> Matched:
    some = tuple(Boxed(Path(name), name, (Box(name, "cat", (0, 0, 1, 1), name),)) for name in names)
    return Matched(some, {}, {}, ())


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (("train/a.png", "Test/b.png"), {"train": "train", "test": "Test"}),
        (("train2017/a.png", "val2017/b.png"), {"train": "train2017", "val": "val2017"}),
        (("my_train/a.png", "val/b.png"), {"train": "my_train", "val": "val"}),
        (("test/train/a.png", "test/val/b.png"), {"train": "test/train", "val": "test/val"}),
        (("a/train/1.png", "b/train/1.png", "a/val/2.png"), {"train": "a/train, b/train", "val": "a/val"}),
        (("train/a.png", "test/val/b.png", "c.png"), {"train": "train", "test": "test"}),
        # Trains and boards, among other things.
        (("train_station/a.png", "dev_board/b.png", "cat/c.png"), {}),
        (("train/a.png", "training_set/b.png"), {}),
        (("train_test/a.png", "val/b.png"), {}),
        (("train.png", "test.png"), {}),
        ((), {}),
    ],
)
def test_folders_say_parts_by_their_names(names: tuple[str, ...], parts: dict[str, str]):
    found = by_folders(images(*names))
    assert {part.word: part.label for part in found} == parts


def test_masks_that_nothing_names_say_no_folder_of_a_part():
    found = by_folders(Matched(images("train/a.png", "val/b.png").images, {}, {}, ("masks/train/a.png",)))
    assert [part.label for part in found] == ["train", "val"]


def test_more_than_two_folders_of_a_part_are_counted():
    (test, _train) = by_folders(images(*(f"{n}/train/a.png" for n in "abcd"), "a/test/b.png"))
    assert (test.label, _train.label) == ("a/test", "a/train, b/train and 2 more")
