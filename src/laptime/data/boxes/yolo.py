"""Boxes in YOLO's text files: one for each image, a line for each box, as shares of the image, and the classes' names.

A line says the class's number, the box's centre, its width and its height; or the corners of a polygon around a thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laptime.data.boxes.box import at, digits, finite, refused
from laptime.data.boxes.files import Beside, ending
from laptime.data.boxes.read import Annotated
from laptime.data.decode import size_said
from laptime.errors import DataError, shorten

_LISTS = ("classes.txt", "labels.txt", "_darknet.labels")
_VALUES = 5
# A share may be as much above 1, or below 0, by the digits of a file.
_ROUNDED = 1e-3
_LINES = "write a line for each box (the class's number, centre, width and height as shares of the image)"
_GIVE = "give them in data.yaml (names: [cat, dog]), or in classes.txt, one a line"


@dataclass(frozen=True)
class _Names:
    """The classes by their numbers, from 0, the file that says them, and whether lines end with points of a body."""

    by_number: dict[int, str]
    path: Path
    with_points: bool = False


def without_yolo(root: Path, folder: Path) -> bool:
    """Whether no text file of a folder says boxes of an image; raises DataError."""
    stems = Beside(root).by_stem
    return not any(path.stem in stems and _says_boxes(path) for path in _texts(folder))


def lack_of_yolo(root: Path) -> str:
    """A sentence on text files and folders `labels` that say no boxes; empty where there are none.

    Raises:
        DataError: a file or folder can't be read.
    """
    texts, stems = _texts(root), Beside(root).by_stem
    beside = [path for path in texts if path.stem in stems]
    filled = next((path for path in beside if _text(path).strip()), None)
    if filled is not None:
        first = next(line for line in lines_of(filled) if line.strip())
        return f"{filled} begins with {shorten(first.strip(), 60)!r}, which is no box: {_LINES}."
    if beside:
        return f"{root} has {len(beside)} text file(s) called as its images, all empty, so no boxes: {_LINES}."
    alone = next(filter(_says_boxes, texts), None)
    if alone is not None:
        return f"{alone} is for no image of {root}: call each text file as its image, such as {alone.stem}.jpg."
    empty = next((path for path in (root / "labels", *sorted(root.glob("*/labels"))) if path.is_dir()), None)
    return f"{empty} holds no text file: add one for each image, called as it is; {_LINES}." if empty else ""


def read_yolo(root: Path, folder: Path) -> Annotated:
    """Reads the text files of a folder that are called as its images; beside these one without a file is background.

    Args:
        root: the images' folder, and that of the classes' names.
        folder: of the text files, below it.

    Raises:
        DataError: a file can't be read, is for no image, or says something that is no box; file and line are named.
    """
    images, names = Beside(root), _names(root)
    said = f"Boxes are those of text files (YOLO's form), the classes' names those of {shorten(names.path.name)}."
    found = Annotated(said, unnamed="background beside others")
    for path in _texts(folder):
        image = images.of(path)
        if image is None:
            if _says_boxes(path):
                raise DataError(f"{path} is for no image of {root}: add {path.stem}.jpg, or remove the file.")
            continue
        found.bare(image, str(path))
        height, width = size_said(root / image)
        for number, line in enumerate(lines_of(path), start=1):
            if line.strip():
                label, shares, is_polygon = _box(at(path, number), line.split(), names)
                found.polygons += is_polygon
                sides = tuple(s * n for s, n in zip(shares, (width, height, width, height), strict=True))
                found.add(image, label, sides, at(path, number), (width, height))
    return found


def yolo_names(root: Path, folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folders of other such files, and the images for which they stand; raises DataError."""
    images, by = Beside(root), dict[Path, list[str]]()
    for path in _texts(root):
        image = None if path.is_relative_to(folder) else images.of(path)
        if image:
            by.setdefault(path.parent, []).append(image)
    yield from by.items()


def _texts(folder: Path) -> list[Path]:
    return [path for path in ending(folder, ".txt") if path.name not in _LISTS]


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, of whatever encoding; raises DataError."""
    return _text(path).splitlines()


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}): check it.") from error


def _says_boxes(path: Path) -> bool:
    """Whether the first line that is not empty holds numbers alone, and enough of them."""
    first = next((line.split() for line in lines_of(path) if line.strip()), [])
    return len(first) >= _VALUES and all(finite(text) is not None for text in first)


def _names(root: Path) -> _Names:
    """The one list of classes in a folder; raises DataError where there is none, or two differ."""
    lists = [
        path for path in ending(root, ".txt", ".labels", ".names") if path.name in _LISTS or path.suffix == ".names"
    ]
    found = [_Names(dict(enumerate(map(str.strip, _text(path).strip().splitlines()))), path) for path in lists]
    found = [*filter(None, map(_of_yaml, ending(root, ".yaml", ".yml"))), *found]
    if not found:
        raise DataError(f"{root} holds no names of the classes that the text files number: {_GIVE}.")
    for other in found[1:]:
        if other.by_number != found[0].by_number:
            raise DataError(f"{found[0].path} and {other.path} name the classes differently: keep one of them.")
    return found[0]


def yaml_of(path: Path) -> dict[Any, Any]:
    """What a YAML file says, as texts, lists and objects; empty where it is no object; raises DataError."""
    import yaml  # workers read a store alone, and may run where there is none

    try:
        # Texts alone: YAML's own rules make truth values of classes that are called yes and no.
        fields: Any = yaml.load(_text(path), Loader=yaml.BaseLoader)  # noqa: S506 - of all loaders the most harmless
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise _no_names(path, error) from error
    return fields if isinstance(fields, dict) else {}


def _of_yaml(path: Path) -> _Names | None:
    fields = yaml_of(path)
    names = fields.get("names")
    pairs = enumerate(names) if isinstance(names, list) else names.items() if isinstance(names, dict) else ()
    try:
        by_number = {int(number): str(name).strip() for number, name in pairs}
    except ValueError as error:
        raise _no_names(path, error) from error
    return _Names(by_number, path, "kpt_shape" in fields) if by_number else None


def _no_names(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} says no names of classes ({shorten(str(error))}): {_GIVE}.")


def _box(place: str, texts: Sequence[str], names: _Names) -> tuple[str, tuple[float, ...], bool]:
    """Class, sides as shares of the image, and whether they are those around a polygon."""
    given = [finite(text) for text in texts]
    values = [value for value in given if value is not None]
    is_polygon = len(values) > _VALUES and len(values) % 2 == 1 and not names.with_points
    if len(values) < len(given) or not (len(values) == _VALUES or is_polygon or (names.with_points and values[5:])):
        raise refused(
            place,
            f"{shorten(' '.join(texts), 60)!r} is no box: give the class's number, the centre, width and height as "
            "shares of the image",
        )
    shares = _around(values[1:]) if is_polygon else _sides(*values[1:_VALUES])
    outside = next((v for v in values[1 : None if is_polygon else _VALUES] if not -_ROUNDED <= v <= 1 + _ROUNDED), None)
    if outside is not None:
        raise refused(
            place, f"{digits(outside)} is no share of the image, from 0 to 1: divide pixels by its width and height"
        )
    label = names.by_number.get(int(values[0])) if values[0].is_integer() else None
    if not label:
        raise refused(
            place,
            f"class {digits(values[0])} is none of the {len(names.by_number)} that {names.path} names: add it there",
        )
    return label, shares, is_polygon


def _sides(x: float, y: float, width: float, height: float) -> tuple[float, ...]:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _around(corners: Sequence[float]) -> tuple[float, ...]:
    across, down = corners[::2], corners[1::2]
    return min(across), min(down), max(across), max(down)
