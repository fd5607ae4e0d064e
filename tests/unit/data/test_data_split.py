"""The split of images that come without one: by its seed, for folders of classes and of boxes."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from box_samples import read_lines, write_photographs, write_table
from data_samples import MakeFolder, nobody

from laptime.data.boxes.box import Box, Boxed, one_sided, sides
from laptime.data.boxes.store import read_box_meta
from laptime.data.choices import split_choices
from laptime.data.fetch import fetch, verify
from laptime.data.split import parted
from laptime.errors import DataError, UnreachableError, UsageError
from laptime.gate.request import _from_anywhere

NAMES = [f"a/{number}.png" for number in range(20)]


def test_a_fifth_is_the_test_and_stays_there() -> None:
    for seed in (0, 1, 2):
        train, test = parted(NAMES, seed)
        assert (len(train), len(test)) == (16, 4)
        assert sorted(train + test) == sorted(NAMES)
        assert parted(NAMES[::-1], seed) == (train, test)
        fewer = parted([name for name in NAMES if name != train[0]], seed)
        assert fewer[1] == test
    assert len({tuple(parted(NAMES, seed)[1]) for seed in range(8)}) == 8
    assert parted(["a"], 1) == (["a"], [])


def test_a_folders_seed_chooses_its_test(make_folder: MakeFolder, home: Path) -> None:
    root = make_folder(splits=("",), count=5)
    plain, other = fetch("eurosat", str(root), home), fetch("eurosat", f"{root}#seed=3", home)
    assert (other.train_count, other.test_count) == (plain.train_count, plain.test_count) == (12, 3)
    assert other.digest != plain.digest
    assert "always the same (#seed=1 behind the place of the data chooses another)" in plain.notice
    assert "A fifth of each class, by seed 3, is kept for the test." in other.notice
    assert fetch("eurosat", f"{root}#seed=0", home).digest == plain.digest
    small = fetch("eurosat", f"{root}#seed=3#size=16", home)
    assert verify("eurosat", f"{root}#size=16#seed=3", home).digest == small.digest != other.digest
    with tarfile.open(root.with_suffix(".tar"), "w") as tar:
        tar.add(root, "images")
    assert fetch("cifar", f"{root.with_suffix('.tar')}#seed=3", home).digest == other.digest


def test_a_seed_of_photographs_with_boxes(home: Path, tmp_path: Path) -> None:
    root = write_photographs(tmp_path / "p", count=10)
    found = {seed: fetch("detection", f"{root}#seed={seed}", home) for seed in range(4)}
    assert found[0].digest == fetch("detection", str(root), home).digest
    tests = {read_box_meta(Path(spec.path)).test for spec in found.values()}
    assert all(len(test) == 2 for test in tests)
    assert len(tests) > 1
    assert "A fifth of the images, by seed 3, is kept for the test." in found[3].notice
    with pytest.raises(UsageError, match=r"was not written with #seed=2: give the folder that it was made of"):
        fetch("detection", f"{found[0].path}#seed=2", home)


def boxed(labels: list[str]) -> list[Boxed]:
    """Images with a box of each class that their letters say."""
    return [
        Boxed(Path(f"{n}.png"), f"{n}.png", tuple(Box(f"{n}.png", label, (0, 0, 1, 1), n) for label in some))
        for n, some in enumerate(labels)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_the_last_image_of_a_class_stays_in_training(seed: int) -> None:
    images = boxed(["a"] * 9 + ["ab", "c", "bd"] + [""] * 5)
    plain = parted([i.name for i in images if i.boxes], seed)
    train, test = sides(images, Path("boxes.csv"), seed)
    assert not set(train) & set(test)
    assert (len(train), len(test)) == (14, 3)
    assert {"10.png", "11.png"} <= set(train)
    if not {"10.png", "11.png"} & set(plain[1]):
        assert set(plain[1]) < set(test)
    found = one_sided(images, test)
    assert found[0].startswith("Classes with boxes on training images alone, so the test says nothing of them: ")
    assert [sentence.endswith((": b, c, d.", ": c, d.")) for sentence in found] == [True]


@pytest.mark.parametrize("seed", range(4))
def test_images_whose_classes_are_met_elsewhere_are_split_by_the_hash_alone(seed: int) -> None:
    images = boxed(["a", "b", "ab"] * 7)
    train, test = sides(images, Path("boxes.csv"), seed)
    assert parted([i.name for i in images], seed) == ([*train], [*test])
    assert one_sided(images, test) == []


def test_where_each_image_is_the_only_one_of_its_class_the_notice_says_so(home: Path, tmp_path: Path) -> None:
    root = write_photographs(tmp_path / "p", count=8)
    lines = read_lines(root)
    for number, line in enumerate(lines[1:]):
        line[lines[0].index("class")] = f"kind {number}"
    write_table(root / "boxes.csv", lines)
    found = fetch("detection", str(root), home)
    assert (found.train_count, found.test_count) == (6, 2)
    assert "on training images alone, so the test says nothing of them: kind 0, " in found.notice
    assert " and 1 more. Classes with boxes on test images alone, so nothing is learnt of them: kind " in found.notice


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "4294967296", "99999999999"])
def test_what_is_no_seed(text: str, make_folder: MakeFolder, home: Path) -> None:
    with pytest.raises(UsageError, match=r"behind #seed= is no seed: give a whole number from 0 to 4294967295"):
        fetch("cifar", f"{make_folder(splits=('',))}#seed={text}", home)


def test_where_there_is_nothing_to_split(
    make_folder: MakeFolder, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_folder()
    with pytest.raises(UsageError, match=r"is split already \(train, test\), so there is nothing for #seed=1"):
        fetch("cifar", f"{root}#seed=1", home)
    store = fetch("cifar", str(root), home).path
    with pytest.raises(UsageError, match=r"the store .* was split when it was written: give the folder"):
        fetch("cifar", f"{store}#seed=1", home)
    for asked in ("official", "synthetic", "auto", "s3://bucket/prefix"):
        with pytest.raises(UsageError, match=f"#seed= is for images that come without .* not for '{asked}': leave it"):
            fetch("cifar", f"{asked}#seed=1", home)
    with pytest.raises(UsageError, match=r"#seed= stands more than once in .*: give it once"):
        fetch("cifar", f"{root}#seed=1#seed=2", home)
    with pytest.raises(UsageError, match=r"#side= in .* is not for data without boxes: leave it out"):
        fetch("cifar", f"{root}#side=100", home)
    # A stand-in and a mirror are split already, so nothing is left where the archive is out of reach.
    monkeypatch.setenv("LAPTIME_EUROSAT_URL", f"{nobody()}/EuroSAT.zip")
    monkeypatch.setenv("LAPTIME_DATA_MIRROR", nobody())
    with pytest.raises(UnreachableError, match="can't be reached"):
        fetch("eurosat", "auto#seed=1", home)


def test_a_mark_that_is_none_belongs_to_the_place() -> None:
    assert split_choices("tiles#1") == ("tiles#1", {})


def test_a_gate_finds_a_relative_place_whatever_stands_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photographs(tmp_path / "p")
    for behind in ("", "#seed=1", "#boxes=boxes.csv#side=100", "#size=16", "#bands=1"):
        assert _from_anywhere(f"p{behind}") == f"{tmp_path / 'p'}{behind}"
    assert _from_anywhere("auto#seed=1") == "auto#seed=1"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('0.png,cat,1,1,9,9\n"1.png,cat,1,1,9,9\n2.png,cat,1,1,9,9\n', r"line 3: it is no line of a CSV \(unexpected"),
        ('0.png,cat,1,1,9,9\n"1".png,cat,1,1,9,9\n', r"line 3: it is no line of a CSV .*: look at its quotes"),
        ("0.png,cat,1,1,9,9\n1.png,k\udce4tzchen,1,1,9,9\n", r"line 3: the byte 0xe4 is not of UTF-8"),
    ],
)
def test_a_line_that_is_none_is_named(photographs: Path, home: Path, body: str, said: str) -> None:
    table = photographs / "boxes.csv"
    table.write_bytes(f"filename,class,xmin,ymin,xmax,ymax\n{body}".encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=rf"boxes\.csv, {said}"):
        fetch("detection", str(photographs), home)
    table.write_text(
        "\ufefffilename,class,xmin,ymin,xmax,ymax\n" + "".join(f'{i}.png,"cat\nor dog",1,1,9,9\n' for i in range(5)),
        encoding="utf-8",
    )
    assert fetch("detection", str(photographs), home).classes == ("cat\nor dog",)
