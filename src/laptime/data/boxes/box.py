"""Boxes on images, and the CSV with a line for each of them.

Every way in which the CSV can be wrong is told by file, line and value before anything is stored. The boxes are in
pixels of the image as a viewer shows it, from the left and the top; `xmax` and `ymax` may touch the image's edge.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from laptime.data.boxes.columns import COLUMNS, HOW, no_column
from laptime.data.split import mixed, parted, tested
from laptime.errors import DataError, shorten
from laptime.places import composed

_SIDES = COLUMNS[2:]
# Columns that may say which part of the data a line belongs to.
_SPLITS = ("split", "set", "subset")
# Classes that a notice lists.
_NAMED = 5
# How .xlsx and .ods begin, and .xls.
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_NO_BOX = "leave all four numbers empty where the image has no box"


@dataclass(frozen=True)
class Box:
    """One line of a CSV, or what stands for one in files of other forms.

    Attributes:
        image: the file's name as it is written there.
        sides: xmin, ymin, xmax, ymax in pixels; none where the line says that the image has no box.
        place: file and line, for messages.
        size: width and height of the image as the line says them; empty where it says none.
        split: the part of the data that the line, or its file, says; empty where it says none.
    """

    image: str
    label: str
    sides: tuple[float, ...]
    place: str
    size: tuple[str, ...] = ()
    split: str = ""


@dataclass(frozen=True)
class Boxed:
    """An image and its boxes; none for background alone."""

    path: Path
    name: str
    boxes: tuple[Box, ...] = ()


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
    return found


def _is_empty(row: Mapping[str | None, str | list[str] | None]) -> bool:
    """Whether a line is nothing but commas, as a spreadsheet leaves them below its table."""
    return not any(map(str.strip, ("".join(cell or "") for cell in row.values())))


def check_pixels(boxes: Sequence[Box]) -> None:
    """Refuses boxes that are shares of the image, as other tools write them: each would be a dot in its corner.

    Raises:
        DataError: all are; the first is named.
    """
    given = [box for box in boxes if box.sides]
    if given and all(max(box.sides) <= 1 for box in given):
        raise refused(
            given[0].place,
            "all boxes lie between 0 and 1, which are shares of the image: multiply those across by its width, those "
            "down by its height",
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
    if body.startswith(_WORKBOOKS):
        raise DataError(
            f"{path} is a workbook of a spreadsheet, whatever its name says: export it as CSV in UTF-8; {HOW}."
        )
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
    split = next((str(row[name] or "").strip() for name in row if name and name.lower() in _SPLITS), "")
    if not any(given):
        return Box(image, "", (), at(path, line), split=split)
    if not label:
        raise wrong(path, line, f"it names no class: fill in class, or {_NO_BOX}")
    sides = tuple(_number(path, line, name, text) for name, text in zip(_SIDES, given, strict=True))
    for low, high in ((0, 2), (1, 3)):
        if not above(sides[high], sides[low]):
            raise wrong(
                path,
                line,
                f"{_SIDES[high]} {digits(sides[high])} is not above {_SIDES[low]} {digits(sides[low])}"
                f"{' in single precision' if sides[high] > sides[low] else ''}: correct or remove the line",
            )
    size = tuple(str(row.get(name) or "").strip() for name in ("width", "height"))
    return Box(image, composed(label), sides, at(path, line), size, split)


def digits(value: float) -> str:
    """A number of pixels with all its digits; a whole one without a point."""
    return repr(value).removesuffix(".0")


def above(high: float, low: float) -> bool:
    """Whether one number is above the other as training sees them, as float32."""
    with np.errstate(over="ignore"):
        return bool(np.float32(high) > np.float32(low))


def _number(path: Path, line: int, name: str, text: str) -> float:
    value = finite(text)
    if value is None:
        raise wrong(path, line, f"{name} is {shorten(text)!r}: give a number of pixels, or {_NO_BOX}")
    return value


def finite(text: str) -> float | None:
    """A number as a file writes it; None of what is none, or is not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def wrong(path: Path, line: int, what: str) -> DataError:
    """The error of one line of a CSV."""
    return refused(at(path, line), what)


def at(path: Path, line: int) -> str:
    """A line of a file, for messages."""
    return f"{path}, line {line}"


def refused(place: str, what: str) -> DataError:
    """The error of one box, by its place."""
    return DataError(f"{place}: {what}.")


def check_inside(image: Boxed, height: int, width: int) -> None:
    """Refuses boxes that reach out of their image; raises DataError."""
    for box in image.boxes:
        for name, value, limit in zip(_SIDES, box.sides, (width, height, width, height), strict=True):
            if not 0 <= value <= limit:
                raise refused(
                    box.place,
                    f"{name} {digits(value)} is outside of {image.name}, which is {width}x{height}"
                    f"{_turned(box.size, height, width)}: correct or remove it",
                )


def _turned(size: tuple[str, ...], height: int, width: int) -> str:
    """What is said of an image that lies where its annotations stand, or the other way round."""
    if height == width or size != (str(height), str(width)):
        return ""
    return " and not what its annotations say (remove the EXIF orientation, if they are in pixels of the file)"


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
