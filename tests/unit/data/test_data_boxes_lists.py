"""Splits of sets of boxes that files list: YOLO's data.yaml and Pascal VOC's ImageSets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from box_samples import HEIGHT, PARTS, WIDTH, as_voc, as_yolo, numbers_of, read_lines, sort_files
from PIL import Image

from laptime.data.fetch import fetch
from laptime.errors import DataError, UsageError

OWN = ({0, 1, 2, 3, 4}, {8, 9})
FOLDERS = {"images/*.png": "{part}/images", "labels/*.txt": "{part}/labels"}
NAMES = "names: [dog, cat]\n"


@pytest.fixture
def sorted_yolo(ten: Path) -> Path:
    """Folders train, valid and test, each with images and labels, and a data.yaml that says none of them."""
    sort_files(as_yolo(ten), FOLDERS)
    (ten / "data.yaml").write_text(NAMES)
    return ten


@pytest.fixture
def flat_yolo(ten: Path) -> Path:
    """All photographs in one folder, and a data.yaml that says lists."""
    as_yolo(ten)
    (ten / "data.yaml").write_text(f"{NAMES}path: .\ntrain: train.txt\nval: valid.txt\ntest: test.txt\n")
    return ten


def write_lists(folder: Path, form: str, parts: dict[str, range] = PARTS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, numbers in parts.items():
        (folder / f"{part}.txt").write_text("".join(f"{form.format(number)}\n" for number in numbers))


@pytest.mark.parametrize(
    "said",
    [
        "train: train/images\nval: valid/images\ntest: test/images",
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images",  # as Roboflow has it
        "path: ../datasets/ten\ntrain: train/images\nval: valid/images\ntest: test/images",
        "path: /content/ten\ntrain: /content/ten/train/images\nval: /content/ten/valid\ntest: /content/ten/test",
        'train: "D:\\\\ten\\\\train\\\\images"\nval: valid\\images\ntest: .\\test\\images\\',
        "train:\n- train/images\nval:\n- valid/images\ntest: [test/images]",
        "Train: train\nvalidation: valid\nTEST: test",
    ],
)
def test_folders_of_a_yaml_file_are_its_parts(sorted_yolo: Path, home: Path, said: str):
    sorted_yolo.joinpath("data.yaml").write_text(f"{NAMES}{said}\n")
    found = fetch("detection", str(sorted_yolo), home)
    assert numbers_of(found) == OWN
    assert "own (train, test of data.yaml): 5 image(s) to train on, 2 as the test. val" in found.notice
    assert "(3 image(s)) left aside, test is the test." in found.notice
    with pytest.raises(
        UsageError, match=r"is split already \(train, test of data\.yaml\), so there is nothing for #seed"
    ):
        fetch("detection", f"{sorted_yolo}#seed=1", home)


def test_a_yaml_file_is_followed_before_the_folders(sorted_yolo: Path, home: Path):
    (sorted_yolo / "data.yaml").write_text(f"{NAMES}train: [valid/images, test/images]\nval: train/images\ntest:\n")
    assert numbers_of(fetch("detection", str(sorted_yolo), home)) == ({5, 6, 7, 8, 9}, {0, 1, 2, 3, 4})


def test_a_yaml_file_counts_from_its_own_folder(ten: Path, home: Path):
    sort_files(as_yolo(ten), {"images/*.png": "set/images/{part}", "labels/*.txt": "set/labels/{part}"})
    (ten / "data.yaml").rename(ten / "set" / "data.yaml")
    (ten / "set" / "data.yaml").write_text(f"{NAMES}path: images\ntrain: valid\nval: test\n")
    found = fetch("detection", str(ten), home)
    assert numbers_of(found) == ({5, 6, 7}, {8, 9})
    assert "(train, val of set/data.yaml)" in found.notice
    assert "5 image(s) outside of these parts are left out." in found.notice


@pytest.mark.parametrize(
    "said", ["train: train/images", "train: train/images\nval:\ntest: ''", "val: {a: b}\ntrain: [[a]]"]
)
def test_where_a_yaml_file_says_one_side_alone_the_folders_are_followed(sorted_yolo: Path, home: Path, said: str):
    (sorted_yolo / "data.yaml").write_text(f"{NAMES}{said}\n")
    found = fetch("detection", str(sorted_yolo), home)
    assert numbers_of(found) == OWN
    assert "(train, test): " in found.notice


def test_a_yaml_file_without_classes_is_another_tools(sorted_yolo: Path, home: Path):
    (sorted_yolo / "run.yaml").write_text("train: valid/images\nval: train/images\n")
    assert numbers_of(fetch("detection", str(sorted_yolo), home)) == OWN


def test_a_test_that_a_yaml_file_names_and_that_is_not_there(sorted_yolo: Path, home: Path):
    for kind in ("images", "labels"):  # photographs of no part, in a folder that ends as the missing one
        (sorted_yolo / "test" / kind).rename(sorted_yolo / kind)
    (sorted_yolo / "test").rmdir()
    (sorted_yolo / "data.yaml").write_text(
        f"{NAMES}train: ../train/images\nval: ../valid/images\ntest: ../test/images\n"
    )
    found = fetch("detection", str(sorted_yolo), home)
    assert numbers_of(found) == ({0, 1, 2, 3, 4}, {5, 6, 7})
    assert (
        "(train, val of data.yaml): 5 image(s) to train on, 3 as the test. No image of test has boxes." in found.notice
    )
    shutil.rmtree(sorted_yolo / "valid")
    found = fetch("detection", str(sorted_yolo), home)
    assert (found.train_count, found.test_count) == (4, 1)
    assert "No image of test, val of data.yaml has boxes, so a fifth of train, always the same" in found.notice


@pytest.mark.parametrize("place", ["nowhere", "/etc", "../..", "train/images/0.png", "n" * 5000])
def test_a_training_that_a_yaml_file_names_and_that_is_not_there(sorted_yolo: Path, home: Path, place: str):
    (sorted_yolo / "data.yaml").write_text(f"{NAMES}train: [train/images, {place}]\nval: valid/images\n")
    with pytest.raises(
        DataError, match=r"data\.yaml names '.*', which is no folder or list of images in .*ten: correct"
    ):
        fetch("detection", str(sorted_yolo), home)


def test_one_folder_for_both_sides_is_no_split(flat_yolo: Path, home: Path):
    plain = fetch("detection", f"{flat_yolo}#boxes=labels", home)
    (flat_yolo / "data.yaml").write_text(f"{NAMES}train: images\nval: images\n")
    found = fetch("detection", str(flat_yolo), home)
    assert found.digest == plain.digest
    assert "train and val of data.yaml are the same images: a fifth, always the same (#seed=1 " in found.notice
    assert fetch("detection", f"{flat_yolo}#seed=1", home).digest != found.digest


@pytest.mark.parametrize(
    "form", ["./images/{}.png", "images/{}.png", "/darknet/data/{}.png", "D:\\obj\\{}.png", "{}.png\n"]
)
def test_lists_of_a_yaml_file_are_its_parts(flat_yolo: Path, home: Path, form: str):
    write_lists(flat_yolo, form)
    found = fetch("detection", str(flat_yolo), home)
    assert numbers_of(found) == OWN
    assert "(train, test of data.yaml): 5 image(s) to train on, 2 as the test. val (3 image(s)) left" in found.notice


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "./images/77.png",
            r"train\.txt, line 6: no image '\./images/77\.png' is in .*: add it or remove what names it\.",
        ),
        ("../../77.png", r"train\.txt, line 6: '\.\./\.\./77\.png' leads out of .*: give its path below it\."),
        ("n" * 5000, r"train\.txt, line 6: no image 'n*…' is in "),
    ],
)
def test_a_line_of_a_list_that_names_no_image_is_told(flat_yolo: Path, home: Path, line: str, said: str):
    write_lists(flat_yolo, "./images/{}.png")
    with (flat_yolo / "train.txt").open("a") as file:
        file.write(f"{line}\n./images/78.png\n")
    with pytest.raises(DataError, match=said):
        fetch("detection", str(flat_yolo), home)
    (flat_yolo / "valid.txt").write_text("./images/77.png\n")  # a part that is left aside may be what it likes
    write_lists(flat_yolo, "./images/{}.png", {"train": range(5)})
    assert numbers_of(fetch("detection", str(flat_yolo), home)) == OWN


def test_a_list_whose_every_line_leads_out_is_told(flat_yolo: Path, home: Path):
    write_lists(flat_yolo, "./images/{}.png", {"test": range(8, 10)})
    (flat_yolo / "train.txt").write_text("../../0.png\n1.png\n")
    with pytest.raises(DataError, match=r"train\.txt, line 1: '\.\./\.\./0\.png' leads out of "):
        fetch("detection", str(flat_yolo), home)


def test_an_image_in_two_lists_is_told(flat_yolo: Path, home: Path):
    write_lists(flat_yolo, "./images/{}.png", {"train": range(6), "valid": range(5, 8), "test": range(0)})
    with pytest.raises(
        DataError, match=r"ten has 1 image\(s\), images/5\.png among them, in train and in val of data\.yaml,"
    ):
        fetch("detection", str(flat_yolo), home)


def image_sets(root: Path, devkit: str = "VOC2007", parts: dict[str, range] | None = None) -> Path:
    """The photographs in VOC's own folders, with masks that are called as they are."""
    sort_files(as_voc(root), {"images/*.png": f"{devkit}/JPEGImages", "Annotations/*": f"{devkit}/Annotations"}, ALL)
    (root / devkit / "SegmentationClass").mkdir()
    Image.new("L", (WIDTH, HEIGHT)).save(root / devkit / "SegmentationClass" / "9.png")
    parts = parts or {"train": range(5), "val": range(5, 8), "trainval": range(8), "test": range(8, 10)}
    write_lists(root / devkit / "ImageSets" / "Main", "{}", parts)
    (root / devkit / "ImageSets" / "Main" / "cat_test.txt").write_text("0 -1\n1 1\n")
    write_lists(root / devkit / "ImageSets" / "Segmentation", "{}", {"train": range(9, 10), "val": range(1)})
    return root


ALL = {"all": range(10)}


def test_image_sets_are_followed(ten: Path, home: Path):
    found = fetch("detection", str(image_sets(ten)), home)
    assert numbers_of(found) == OWN
    assert (
        "(Pascal VOC's form). The split is the set's own (train.txt, test.txt of VOC2007/ImageSets/Main): 5 "
        "image(s) to train on, 2 as the test. val.txt (3 image(s)) left aside, test.txt is the test. 1 image(s) that no"
    ) in found.notice
    names = {str(line[0]) for line in read_lines(Path(found.path))[1:]}
    assert names == {f"VOC2007/JPEGImages/{n}.png" for n in OWN[0] | OWN[1]}


@pytest.mark.parametrize("form", ["{}  1", "{} -1", "{}.jpg", "JPEGImages/{}.png", "\n {} "])
def test_lines_of_image_sets_may_say_more_than_a_name(ten: Path, home: Path, form: str):
    image_sets(ten)
    write_lists(ten / "VOC2007" / "ImageSets" / "Main", form, {"train": range(5), "test": range(8, 10)})
    assert numbers_of(fetch("detection", str(ten / "VOC2007"), home)) == OWN


@pytest.mark.parametrize(
    ("parts", "sides"),
    [
        ({"trainval": range(8), "test": range(8, 10)}, ({*range(8)}, {8, 9})),
        ({"train": range(5), "val": range(5, 8), "trainval": range(8)}, ({*range(5)}, {5, 6, 7})),
        ({"train": range(5), "val": range(5, 8), "test": range(20, 30)}, ({*range(5)}, {5, 6, 7})),
    ],
)
def test_which_of_the_image_sets_are_taken(
    ten: Path, home: Path, parts: dict[str, range], sides: tuple[set[int], set[int]]
):
    assert numbers_of(fetch("detection", str(image_sets(ten, parts=parts)), home)) == sides


def test_image_sets_without_a_test_are_no_split(ten: Path, home: Path):
    found = fetch("detection", str(image_sets(ten, parts={"trainval": range(8)})), home)
    assert (found.train_count, found.test_count) == (8, 2)
    assert "the set's own" not in found.notice


def test_image_sets_of_two_years_are_one_split(ten: Path, home: Path):
    first, *_ = image_sets(ten).iterdir()
    shutil.copytree(first, ten / "VOC2012")
    main = ten / "VOC2012" / "ImageSets" / "Main"
    write_lists(main, "{}", {"train": range(8, 10)})
    (main / "test.txt").unlink()
    meta = fetch("detection", str(ten), home)
    assert (meta.train_count, meta.test_count) == (7, 2)
    names = {str(line[0]) for line in read_lines(Path(meta.path))[1:]}
    assert {"VOC2012/JPEGImages/8.png", "VOC2007/JPEGImages/8.png"} < names
    assert "of VOC2007/ImageSets/Main, VOC2012/ImageSets/Main)" in meta.notice


def test_a_line_of_image_sets_that_names_no_image_is_told(ten: Path, home: Path):
    image_sets(ten, parts={"train": range(5), "test": range(8, 12)})
    with pytest.raises(
        DataError, match=r"ImageSets/Main/test\.txt, line 3: no image '10' is in .*VOC2007: add it or remove"
    ):
        fetch("detection", str(ten), home)
