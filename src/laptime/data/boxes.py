"""Boxes on images, as the data of detection comes: a folder of images and one CSV with a line for each box.

Every way in which the CSV can be wrong is told by file, line and value before anything is stored. The boxes are in
pixels of the image as a viewer shows it, from the left and the top; `xmax` and `ymax` may touch the image's edge.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from laptime.data.box_columns import COLUMNS, HOW, no_column
from laptime.data.listing import PASSED, leads_back
from laptime.data.split import mixed, parted, tested
from laptime.errors import DataError, shorten

_SIDES = COLUMNS[2:]
# Classes that a notice lists.
_NAMED = 5
# Links to folders are followed as far down as those of class folders are.
_FOLLOWED = 2
_NO_BOX = "leave all four numbers empty where the image has no box"


@dataclass(frozen=True)
class Box:
    """One line of the CSV.

    Attributes:
        image: the file's name as the CSV says it.
        sides: xmin, ymin, xmax, ymax in pixels; none where the line says that the image has no box.
        line: in the CSV, from 1.
        size: width and height of the image as the line says them; empty where it says none.
    """

    image: str
    label: str
    sides: tuple[float, ...]
    line: int
    size: tuple[str, ...] = ()


@dataclass(frozen=True)
class Boxed:
    """An image and its boxes; none for background alone."""

    path: Path
    name: str
    boxes: tuple[Box, ...] = ()


def find_csv(root: Path) -> Path:
    """The one CSV in a folder, wherever it lies; raises DataError where there is none or several."""
    found = find_tables(root)
    if not found:
        raise DataError(f"{root} holds no CSV of boxes, which are read from nothing else: add one ({HOW}).")
    if len(found) > 1:
        names = ", ".join(shorten(str(p.relative_to(root))) for p in found[:4])
        raise DataError(
            f"{root} holds {len(found)} CSV files ({names}): name the one that says the boxes with "
            f"--data '{root}#boxes={min(found, key=_likely).relative_to(root)}'."
        )
    return found[0]


def _likely(path: Path) -> tuple[bool, bool]:
    """Lowest of the CSV that is meant most likely: one with boxes, that of a training."""
    return not names_of_boxes(path), "train" not in f"{path.parent.name}/{path.name}".lower()


def find_tables(root: Path) -> list[Path]:
    """The CSVs in a folder, wherever they lie; raises DataError."""
    return sorted(p for p in files(root) if p.suffix.lower() == ".csv")


def files(root: Path) -> Iterator[Path]:
    """The files below a folder, without hidden ones and links that lead nowhere; raises DataError."""

    def refuse(error: OSError) -> NoReturn:
        raise DataError(f"{error.filename} can't be read ({error.strerror}): check it.") from error

    for folder, folders, names in os.walk(root, onerror=refuse, followlinks=True):
        deep = len(Path(folder).relative_to(root).parts) >= _FOLLOWED
        folders[:] = [n for n in folders if not n.startswith(PASSED) and not _left(Path(folder, n), deep)]
        for path in (Path(folder, name) for name in names if not name.startswith(PASSED)):
            try:
                if path.is_file():
                    yield path
            except OSError as error:
                refuse(error)


def _left(folder: Path, deep: bool) -> bool:
    """Whether a link to a folder is not followed."""
    return folder.is_symlink() and (deep or leads_back(folder))


def read_boxes(path: Path) -> list[Box]:
    """Reads a CSV of boxes.

    Raises:
        DataError: it can't be read, lacks a column, or a line says something that is no box.
    """
    begun, found = 1, list[Box]()
    try:
        lines = _lines(path)
        missing = [c for c in COLUMNS if c not in (lines.fieldnames or ())]
        if missing:
            raise no_column(path, missing, lines.fieldnames or ())
        for name in COLUMNS:
            if (lines.fieldnames or ()).count(name) > 1:
                raise DataError(f"{path} has several columns {name!r}: keep the one that is meant.")
        begun = lines.line_num + 1
        for row in lines:
            if _is_empty(row):
                continue
            if any(value.strip() for value in row.get(None) or ()):
                raise wrong(path, lines.line_num, "it has more values than there are columns: quote what holds a comma")
            found.append(_box(path, row, lines.line_num))
            begun = lines.line_num + 1
    except csv.Error as error:  # of a quote that is never closed told at the end of the file
        raise wrong(path, begun, f"it is no line of a CSV ({error}): look at its quotes") from error
    _check_pixels(path, found)
    return found


def _is_empty(row: Mapping[str | None, str | list[str] | None]) -> bool:
    """Whether a line is nothing but commas, as a spreadsheet leaves them below its table."""
    return not any(map(str.strip, ("".join(cell or "") for cell in row.values())))


def _check_pixels(path: Path, boxes: Sequence[Box]) -> None:
    """Refuses boxes that are shares of the image, as other tools write them: each would be a dot in its corner."""
    given = [box for box in boxes if box.sides]
    if given and all(max(box.sides) <= 1 for box in given):
        raise wrong(
            path,
            given[0].line,
            "all boxes lie between 0 and 1, which are shares of the image: multiply xmin and xmax by its width, ymin "
            "and ymax by its height",
        )


def names_of_boxes(path: Path) -> list[str]:
    """What a CSV calls its images; none of one that is no CSV of boxes, for which nobody asked."""
    try:
        lines = _lines(path)
        if not set(COLUMNS) <= set(lines.fieldnames or ()):
            return []
        return [name for row in lines if (name := str(row["filename"] or "").strip())]
    except (DataError, csv.Error):
        return []


def _lines(path: Path) -> csv.DictReader[str]:
    """The lines of a CSV, blanks around its columns' names and after commas passed over; raises DataError."""
    lines = csv.DictReader(io.StringIO(_text(path), newline=""), strict=True, skipinitialspace=True)
    if lines.fieldnames:
        lines.fieldnames = [name.strip() for name in lines.fieldnames]
    return lines


def _text(path: Path) -> str:
    try:
        body = path.read_bytes()
    except OSError as error:
        raise DataError(f"the boxes {path} can't be read ({error}): give a CSV in UTF-8; {HOW}.") from error
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = body.count(b"\n", 0, error.start) + 1, body[error.start]
        raise wrong(path, line, f"the byte {byte:#04x} is not of UTF-8: write the CSV in UTF-8") from error


def _box(path: Path, row: dict[str, str | None], line: int) -> Box:
    image, label = (str(row[name] or "").strip() for name in ("filename", "class"))
    if not image:
        raise wrong(path, line, "it names no image: fill in filename")
    given = [str(row[name] or "").strip() for name in _SIDES]
    if not any(given):
        return Box(image, "", (), line)
    if not label:
        raise wrong(path, line, f"it names no class: fill in class, or {_NO_BOX}")
    sides = tuple(_number(path, line, name, text) for name, text in zip(_SIDES, given, strict=True))
    for low, high in ((0, 2), (1, 3)):
        if not _above(sides[high], sides[low]):
            raise wrong(
                path,
                line,
                f"{_SIDES[high]} {digits(sides[high])} is not above {_SIDES[low]} {digits(sides[low])}"
                f"{' in single precision' if sides[high] > sides[low] else ''}: correct or remove the line",
            )
    return Box(image, label, sides, line, tuple(str(row.get(name) or "").strip() for name in ("width", "height")))


def digits(value: float) -> str:
    """A number of pixels with all its digits; a whole one without a point."""
    return repr(value).removesuffix(".0")


def _above(high: float, low: float) -> bool:
    """Whether one number is above the other as training sees them, as float32."""
    with np.errstate(over="ignore"):
        return bool(np.float32(high) > np.float32(low))


def _number(path: Path, line: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise wrong(path, line, f"{name} is {shorten(text)!r}: give a number of pixels, or {_NO_BOX}")
    return value


def wrong(path: Path, line: int, what: str) -> DataError:
    """The error of one line of a CSV."""
    return DataError(f"{path}, line {line}: {what}.")


def check_inside(table: Path, image: Boxed, height: int, width: int) -> None:
    """Refuses boxes that reach out of their image; raises DataError."""
    for box in image.boxes:
        for name, value, limit in zip(_SIDES, box.sides, (width, height, width, height), strict=True):
            if not 0 <= value <= limit:
                raise wrong(
                    table,
                    box.line,
                    f"{name} {digits(value)} is outside of {image.name}, which is {width}x{height}: correct the line",
                )


def sides(images: Sequence[Boxed], where: Path, seed: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the images to train and to test on: a fifth of those with boxes, and of those without, is the test.

    Raises:
        DataError: a side would be left without a box.
    """
    with_boxes = sum(bool(i.boxes) for i in images)
    if with_boxes < 2:
        raise DataError(
            f"{where} has boxes on {with_boxes} image(s), which leaves none for the test: give boxes on at least two."
        )
    train, test = parted([i.name for i in images if not i.boxes], seed)
    chosen = _spared(images, seed)
    train += [i.name for i in images if i.boxes and i.name not in chosen]
    return tuple(sorted(train)), tuple(sorted([*test, *chosen]))


def _spared(images: Sequence[Boxed], seed: int) -> list[str]:
    """The images with boxes that go to the test: the first in their order without which training still has each class.

    Where no image can be missed, the first ones go after all, since a test has to be.
    """
    labels = {i.name: {b.label for b in i.boxes} for i in images if i.boxes}
    left = Counter(label for held in labels.values() for label in held)
    order, count = mixed(list(labels), seed), tested(len(labels))
    chosen: list[str] = []
    for name in order:
        if len(chosen) < count and all(left[label] > 1 for label in labels[name]):
            chosen.append(name)
            left.subtract(labels[name])
    return chosen or order[:count]


def one_sided(images: Sequence[Boxed], test: Sequence[str]) -> list[str]:
    """A sentence for the classes with boxes in training alone, and one for those in the test alone."""
    tested_on = set(test)
    learnt = {b.label for i in images if i.name not in tested_on for b in i.boxes}
    judged = {b.label for i in images if i.name in tested_on for b in i.boxes}
    told = (
        ("training", "the test says nothing of them", learnt - judged),
        ("test", "nothing is learnt of them", judged - learnt),
    )
    return [f"Classes with boxes on {side} images alone, so {so}: {_listed(some)}." for side, so, some in told if some]


def written_twice(classes: Sequence[str]) -> list[str]:
    """A sentence for classes whose names differ in capitals and blanks alone."""
    by: dict[str, list[str]] = {}
    for name in classes:
        by.setdefault("".join(name.casefold().split()), []).append(name)
    some = {" and ".join(names) for names in by.values() if len(names) > 1}
    return [f"Classes whose names differ in capitals or blanks alone, taken for two: {_listed(some)}."] if some else []


def _listed(names: set[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(shorten(name, 40) for name in sorted(names)[:_NAMED]) + more
