"""Boxes in COCO's JSON: `images`, `annotations` and `categories`, a box as left, top, width and height in pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from laptime.data.boxes.box import refused
from laptime.data.boxes.files import bytes_of
from laptime.data.boxes.read import Annotated
from laptime.errors import DataError, shorten
from laptime.parsing import parse_json

_PARTS = ("images", "annotations", "categories")
# What tells a file of boxes from one of captions, of other tools, or of no annotations at all.
_TELLING = (b'"images"', b'"annotations"', b'"bbox"')
_NO_SIZE = (math.inf, math.inf)
_FORM = "give COCO's form (lists images, annotations and categories)"


def is_coco(path: Path) -> bool:
    """Whether a JSON file holds boxes in COCO's form, by the names of its parts; raises DataError."""
    body = bytes_of(path, _FORM)
    return all(name in body for name in _TELLING)


def lack_of_coco(path: Path) -> str:
    """A sentence on a JSON file that is like COCO's, says no boxes and so is not read; empty of any other file."""
    body = bytes_of(path, _FORM)
    try:
        fields = parse_json(body)
    except ValueError as error:
        return _no_json(path, error) if _TELLING[0] in body else ""
    if isinstance(fields, list):
        return _bare(path, fields)
    if not (isinstance(fields, dict) and isinstance(fields.get("images"), list)):
        return ""
    count, annotations = len(fields["images"]), fields.get("annotations")
    if not annotations:
        return f"{path} names {count} image(s) and has no annotations, so no boxes: give the file that has them."
    said = f"{path} has annotations of {count} image(s), none of which has a bbox (as captions and masks alone)"
    return f"{said}: give the file with the boxes, which COCO calls instances."


def _no_json(path: Path, error: ValueError) -> str:
    return f"{path} is no JSON ({shorten(str(error))}): {_FORM}."


def _bare(path: Path, entries: list[Any]) -> str:
    return f"{path} is a bare list of {len(entries)} item(s), which says no images and classes: {_FORM}."


def read_coco(path: Path) -> Annotated:
    """Reads boxes, without those around crowds.

    Raises:
        DataError: it can't be read, or says something that is no image, class or box; the annotation is named.
    """
    parts = _parts(path)
    found = Annotated(f"Boxes are those of {shorten(path.name)} (COCO's form).")
    images: dict[object, Any] = {_id(path, "image", entry): entry for entry in parts["images"]}
    if len(images) < len(parts["images"]):
        raise DataError(f"{path} has two images of one id: give each its own.")
    classes: dict[object, str] = {
        _id(path, "category", entry): _text(path, "category", entry, "name") for entry in parts["categories"]
    }
    for key, entry in images.items():
        found.bare(_text(path, "image", entry, "file_name"), f"{path}, image {key}")
    for entry in parts["annotations"]:
        place = f"{path}, annotation {_said(entry)}"
        image, label = images.get(_key(entry.get("image_id"))), classes.get(_key(entry.get("category_id")))
        if image is None or label is None:
            name = "image_id" if image is None else "category_id"
            part = "images" if image is None else "categories"
            raise refused(
                place,
                f"its {name} {shorten(repr(entry.get(name)))} is not among {part}: add it or remove the annotation",
            )
        if entry.get("iscrowd") in (1, True):
            found.crowds += 1
            continue
        left, top, width, height = _box(place, entry)
        found.add(image["file_name"], label, (left, top, left + width, top + height), place, _size(image))
    return found


def coco_names(path: Path) -> list[str]:
    """What a file calls its images; none of one that is not COCO's, for which nobody asked."""
    try:
        return [entry["file_name"] for entry in _parts(path)["images"]] if is_coco(path) else []
    except (DataError, KeyError):
        return []


def _parts(path: Path) -> Mapping[str, list[dict[str, Any]]]:
    try:
        fields = parse_json(bytes_of(path, _FORM))
    except ValueError as error:
        raise DataError(_no_json(path, error)) from error
    if isinstance(fields, list):
        raise DataError(_bare(path, fields))
    for part in _PARTS:
        entries = fields.get(part) if isinstance(fields, dict) else None
        if not (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)):
            raise DataError(f"{path} has no list of objects {part!r}: {_FORM}.")
    return {part: fields[part] for part in _PARTS}


def _key(value: object) -> str | float | None:
    """An id, which some tools write as text, and pandas with a point."""
    return value if isinstance(value, str | int | float) else None


def _said(entry: Mapping[str, Any]) -> str:
    """The id of an entry for messages, which are made for each of a million annotations and hardly ever shown."""
    key = entry.get("id", "?")
    return str(key) if isinstance(key, int) else shorten(str(key))


def _id(path: Path, what: str, entry: Mapping[str, Any]) -> str | float:
    key = _key(entry.get("id"))
    if key is None:
        raise DataError(f"{path} has an entry ({what}) without an id ({shorten(str(entry), 60)}): give it one.")
    return key


def _text(path: Path, what: str, entry: Mapping[str, Any], name: str) -> str:
    text = entry.get(name)
    if not (isinstance(text, str) and text.strip()):
        raise refused(f"{path}, {what} {shorten(str(entry['id']))}", f"it has no {name}: give it one, as text")
    return text.strip()


def _box(place: str, entry: Mapping[str, Any]) -> tuple[float, float, float, float]:
    given = entry.get("bbox")
    numbers = [float(v) for v in given if _is_number(v)] if isinstance(given, list) else []
    if len(numbers) != 4 or len(given or ()) != 4:
        raise refused(
            place, f"its bbox is {shorten(str(given), 60)}: give left, top, width and height in pixels, or remove it"
        )
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _size(image: Mapping[str, Any]) -> tuple[float, float]:
    """Width and height as the file says them; without a limit where it says none."""
    width, height = image.get("width"), image.get("height")
    return (float(width or 0) or math.inf, float(height or 0) or math.inf) if _is_number(width, height) else _NO_SIZE


def _is_number(*values: object) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values)
