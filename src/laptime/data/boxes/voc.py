"""Boxes in Pascal VOC's XML, as labelImg and others write it: a file for each image, with an object for each box."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from laptime.data.boxes.box import finite, refused
from laptime.data.boxes.files import Beside, bytes_of, ending
from laptime.data.boxes.read import Annotated
from laptime.errors import DataError, shorten

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_FORM = "give Pascal VOC's form (annotation, with object, name and bndbox)"
# What tells these files from those of other tools, which begin with <annotations> or <opencv_storage>.
_TELLING = re.compile(rb"<annotation[\s>]")
_HEAD = 4096


def without_voc(folder: Path) -> bool:
    """Whether a folder holds no such file; raises DataError."""
    return not any(map(_is_voc, ending(folder, ".xml")))


def read_voc(root: Path, folder: Path) -> Annotated:
    """Reads the files of a folder; boxes that are marked as difficult are boxes, too.

    Args:
        root: the images' folder.
        folder: of the files, below it.

    Raises:
        DataError: a file can't be read, is for no image, or says something that is no box; file and object are named.
    """
    files = list(filter(_is_voc, ending(folder, ".xml")))
    images, found = Beside(root), Annotated(f"Boxes are those of {len(files)} XML file(s) (Pascal VOC's form).")
    for path in files:
        whole = _parsed(path)
        name = _text(whole, "filename")
        image = images.of(path, name) or name
        if not image:
            raise DataError(f"{path} is for no image of {root}: add {path.stem}.jpg, or remove the file.")
        found.bare(image, str(path))
        size = finite(_text(whole, "size/width")), finite(_text(whole, "size/height"))
        for number, thing in enumerate(whole.findall("object"), start=1):
            place = f"{path}, object {number}"
            found.add(
                image, _label(place, thing), _box(place, thing), place, (size[0] or math.inf, size[1] or math.inf)
            )
            found.difficult += _text(thing, "difficult") == "1"
    return found


def voc_names(root: Path, folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The folders of other such files, and the images for which they stand; raises DataError."""
    images, by = Beside(root), dict[Path, list[str]]()
    for path in ending(root, ".xml"):
        if not path.is_relative_to(folder) and _is_voc(path):
            by.setdefault(path.parent, []).append(images.of(path, _text(_parsed(path), "filename")) or "")
    yield from by.items()


def _is_voc(path: Path) -> bool:
    return bool(_TELLING.search(bytes_of(path, _FORM)[:_HEAD]))


def _parsed(path: Path) -> Element:
    body = bytes_of(path, _FORM)
    if b"<!ENTITY" in body:
        raise DataError(f"{path} declares entities, which may grow without bounds: {_FORM}.")
    try:
        whole = ElementTree.fromstring(body)  # noqa: S314 - what is dangerous in XML is refused above
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"{path} is no XML ({shorten(str(error))}): {_FORM}.") from error
    if whole.tag != "annotation":
        raise DataError(f"{path} begins with {shorten(whole.tag)!r}: {_FORM}, without a namespace.")
    return whole


def _text(thing: Element, name: str) -> str:
    return (thing.findtext(name) or "").strip()


def _label(place: str, thing: Element) -> str:
    label = _text(thing, "name")
    if not label:
        raise refused(place, "it names no class: fill in name")
    return label


def _box(place: str, thing: Element) -> tuple[float, ...]:
    sides = []
    for name in _SIDES:
        text = _text(thing, f"bndbox/{name}")
        value = finite(text)
        if value is None:
            raise refused(place, f"{name} is {shorten(text)!r}: give a number of pixels, or remove the object")
        sides.append(value)
    return tuple(sides)
