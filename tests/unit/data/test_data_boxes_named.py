"""What a CSV of boxes calls its images: other splits, blanks, paths of Windows, places outside, other separators."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from box_samples import HEIGHT, WIDTH, read_lines, write_photographs, write_table
from data_samples import stores
from PIL import Image

from laptime.data.boxes.store import read_box_meta
from laptime.data.decode import read_image
from laptime.data.fetch import fetch
from laptime.errors import DataError


def names_in(found) -> set[str]:
    meta = read_box_meta(Path(found.path))
    return {*meta.train, *meta.test}


def two_tables(root: Path) -> None:
    """The CSV as two, of the first seven photographs and of the others; the last has no box and no line."""
    head, *lines = read_lines(root)
    (root / "boxes.csv").unlink()
    write_table(root / "train.csv", [head, *lines[:7]])
    write_table(root / "test.csv", [head, *lines[7:]])
    Image.new("RGB", (20, 30)).save(root / "images" / "bare.png")


def test_images_that_only_another_table_names_are_left_out(tmp_path: Path, home: Path):
    root = write_photographs(tmp_path / "photographs", 10)
    two_tables(root)
    found = fetch("detection", f"{root}#boxes=train.csv", home)
    assert names_in(found) == {f"images/{i}.png" for i in range(7)} | {"images/bare.png"}
    assert "3 image(s) that only test.csv names are left out." in found.notice
    assert "1 image(s) without boxes are taken as background." in found.notice
    (root / "test.csv").unlink()  # the state of the folder is that of all its tables
    again = fetch("detection", f"{root}#boxes=train.csv", home)
    assert "4 image(s) without boxes" in again.notice
    assert "left out" not in again.notice


def test_a_table_that_holds_no_boxes_names_no_images(tmp_path: Path, home: Path):
    root = write_photographs(tmp_path / "photographs", 10)
    two_tables(root)
    write_table(root / "test.csv", [["filename", "photographer"], *([f"{i}.png", "she"] for i in range(10))])
    found = fetch("detection", f"{root}#boxes=train.csv", home)
    assert len(names_in(found)) == 11
    (root / "test.csv").write_bytes(b"\xff\xfe no text")
    assert len(names_in(fetch("detection", f"{root}#boxes=train.csv", home))) == 11


def test_blanks_after_commas_are_passed_over(photographs: Path, home: Path):
    plain = fetch("detection", str(photographs), home)
    table = photographs / "boxes.csv"
    lines = [line.split(",") for line in table.read_text().splitlines()]
    lines[1][3] = '"dog"'
    table.write_text("\n".join(", ".join(line) + " " for line in lines))
    assert fetch("detection", str(photographs), home).digest == plain.digest


def test_names_that_a_mac_takes_apart_are_found(photographs: Path, home: Path):
    lines = read_lines(photographs)
    lines[1][0] = "\u00e4.png"
    (photographs / "images" / "0.png").rename(photographs / "images" / "a\u0308.png")
    write_table(photographs / "boxes.csv", lines)
    assert "without boxes" not in fetch("detection", str(photographs), home).notice


@pytest.mark.parametrize("written", ["images\\{}", ".\\images\\{}", "C:\\far\\away\\{}", "labels/../images/{}"])
def test_paths_of_windows_and_ways_through_a_parent_are_read(photographs: Path, home: Path, written: str):
    plain = fetch("detection", str(photographs), home)
    lines = read_lines(photographs)
    write_table(photographs / "boxes.csv", [lines[0], *([written.format(n), *rest] for n, *rest in lines[1:])])
    assert fetch("detection", str(photographs), home).digest == plain.digest


def test_a_table_in_a_folder_of_its_own_reaches_its_neighbour(photographs: Path, home: Path):
    plain = fetch("detection", str(photographs), home)
    lines = read_lines(photographs)
    (photographs / "boxes.csv").unlink()
    (photographs / "labels").mkdir()
    moved = [lines[0], *([f"../images/{n}", *rest] for n, *rest in lines[1:])]
    write_table(photographs / "labels" / "boxes.csv", moved)
    assert fetch("detection", str(photographs), home).digest == plain.digest


@pytest.mark.parametrize("written", ["../{}", "..\\images\\{}", "images/../../photographs/../{}"])
def test_a_name_that_leads_out_of_the_folder_is_told(photographs: Path, home: Path, written: str):
    (photographs.parent / "1.png").write_bytes((photographs / "images" / "1.png").read_bytes())
    lines = read_lines(photographs)
    lines[2][0] = written.format(lines[2][0])
    write_table(photographs / "boxes.csv", lines)
    with pytest.raises(DataError, match=r"boxes\.csv, line 3: .*1\.png' leads out of .*: give its path below it"):
        fetch("detection", str(photographs), home)
    assert not stores(home)


def test_boxes_that_are_shares_of_the_image_are_told(photographs: Path, home: Path):
    lines = read_lines(photographs)
    write_table(photographs / "boxes.csv", [lines[0], *([*line[:4], 0.1, 0.2, 0.9, 1.0] for line in lines[1:])])
    with pytest.raises(DataError, match=r"boxes\.csv, line 2: all boxes lie between 0 and 1, which are shares"):
        fetch("detection", str(photographs), home)


def test_a_column_that_stands_twice_is_told(photographs: Path, home: Path):
    lines = read_lines(photographs)
    write_table(photographs / "boxes.csv", [[*line, line[3]] for line in lines])
    with pytest.raises(DataError, match="has several columns 'class'"):
        fetch("detection", str(photographs), home)


def test_classes_that_are_written_in_two_ways_are_told(photographs: Path, home: Path):
    lines = read_lines(photographs)
    place = lines[0].index("class")
    lines.append([*lines[1][:place], f"{lines[1][place]}".upper(), *lines[1][place + 1 :]])
    write_table(photographs / "boxes.csv", lines)
    notice = fetch("detection", str(photographs), home).notice
    assert f"blanks alone, taken for two: {f'{lines[1][place]}'.upper()} and {lines[1][place]}." in notice


def test_boxes_that_stand_twice_count_once(photographs: Path, home: Path):
    lines = read_lines(photographs)
    write_table(photographs / "boxes.csv", [*lines, *lines[1:3]])
    found = fetch("detection", str(photographs), home)
    assert "2 box(es) that repeat another of the same image are passed over." in found.notice
    assert len((Path(found.path) / "boxes.csv").read_text().splitlines()) == len(lines)


@pytest.mark.parametrize(("size", "told"), [(("60.0", "40"), False), (("", "?"), False), (("40", "60"), True)])
def test_images_of_another_size_than_the_table_says_are_told(
    photographs: Path, home: Path, size: tuple[str, str], told: bool
):
    lines = read_lines(photographs)
    lines[2][1:3] = size
    write_table(photographs / "boxes.csv", lines)
    notice = fetch("detection", str(photographs), home).notice
    assert ("1 image(s) are not as wide and high as their annotations say, images/1.png among them" in notice) is told


@pytest.mark.parametrize(("sign", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_another_separator_is_named(photographs: Path, home: Path, sign: str, word: str):
    table = photographs / "boxes.csv"
    table.write_text(table.read_text().replace(",", sign))
    with pytest.raises(DataError, match=rf"boxes\.csv separates its columns by {word}: write commas between them"):
        fetch("detection", str(photographs), home)


def with_exif(path: Path, block: bytes) -> None:
    Image.fromarray(np.full((HEIGHT, WIDTH, 3), 128, dtype=np.uint8)).save(path, exif=b"Exif\0\0" + block)


def block(orientation: int, more: bytes = b"") -> bytes:
    """A TIFF block that says an orientation, and a second entry as given."""
    count = 1 + len(more) // 12
    entries = struct.pack("<HHII", 0x0112, 3, 1, orientation) + more
    return b"II*\0" + struct.pack("<IH", 8, count) + entries + b"\0\0\0\0"


@pytest.mark.parametrize("broken", [b"no block at all", b"II*\0\xff\xff\xff\x7f", block(6)[:16], b""])
def test_a_broken_exif_block_turns_nothing(tmp_path: Path, broken: bytes):
    with_exif(tmp_path / "a.jpg", broken)
    assert read_image(tmp_path / "a.jpg").shape == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize(("orientation", "turned"), [(1, False), (3, False), (6, True), (8, True), (9, False)])
def test_an_orientation_is_followed_whatever_else_the_block_says(tmp_path: Path, orientation: int, turned: bool):
    odd = struct.pack("<HHII", 0x829A, 5, 1, 0x7FFFFFFF)  # an exposure time beyond the block
    with_exif(tmp_path / "a.jpg", block(orientation, odd))
    shape = (WIDTH, HEIGHT, 3) if turned else (HEIGHT, WIDTH, 3)
    assert read_image(tmp_path / "a.jpg").shape == shape


def test_a_photograph_with_a_broken_exif_block_is_stored(photographs: Path, home: Path):
    lines = read_lines(photographs)
    lines[1][0] = "0.jpg"
    write_table(photographs / "boxes.csv", lines)
    (photographs / "images" / "0.png").unlink()
    with_exif(photographs / "images" / "0.jpg", b"no block at all")
    assert "images/0.jpg" in names_in(fetch("detection", str(photographs), home))
