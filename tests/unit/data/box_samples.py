"""Small photographs with boxes that the tests of detection's data make."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from laptime.data.boxes.columns import COLUMNS
from laptime.data.boxes.store import read_box_meta
from laptime.spec import DataSpec

WIDTH, HEIGHT = 60, 40
YAML = "path: ../datasets/x\ntrain: images\nnc: 2\nnames: {}\n"
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_WHOLE = """<annotation verified="yes">
  <filename>{name}</filename><path>C:\\Users\\me\\{name}</path>
  <size><width>{width}</width><height>{height}</height><depth>3</depth></size>
  {things}
</annotation>
"""


def write_photographs(root: Path, count: int = 5, extra: tuple[str, ...] = ("width", "height")) -> Path:
    """Photographs with one box each, and a CSV beside them as the tutorials have it."""
    (root / "images").mkdir(parents=True)
    size = {"width": WIDTH, "height": HEIGHT}
    lines = [[*COLUMNS[:1], *extra, *COLUMNS[1:]]]
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{number}.png")
        box = ("cat" if number % 2 else "dog", 5, 4, 30 + number % 10, 40)
        lines.append([f"{number}.png", *(str(size[name]) for name in extra), *box])
    write_table(root / "boxes.csv", lines)
    return root


def write_table(path: Path, lines: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)


def read_lines(root: Path) -> list[list[object]]:
    return list(csv.reader((root / "boxes.csv").read_text().splitlines()))


def as_yolo(root: Path, to: str = "labels") -> Path:
    """The photographs with their boxes as text files, and no CSV."""
    _, *lines = read_lines(root)
    (root / to).mkdir(exist_ok=True, parents=True)
    for name, _, _, label, *sides in lines:
        left, top, right, bottom = map(float, sides)
        values = (
            (left + right) / 2 / WIDTH,
            (top + bottom) / 2 / HEIGHT,
            (right - left) / WIDTH,
            (bottom - top) / HEIGHT,
        )
        text = f"{['dog', 'cat'].index(str(label))} " + " ".join(f"{value:.7f}" for value in values)
        (root / to / f"{Path(str(name)).stem}.txt").write_text(text)
    (root / "data.yaml").write_text(YAML.format("[dog, cat]"))
    (root / "boxes.csv").unlink()
    return root


def as_voc(root: Path, to: str = "Annotations") -> Path:
    """The photographs with their boxes as XML in another folder, and no CSV."""
    _, *lines = read_lines(root)
    (root / to).mkdir(parents=True, exist_ok=True)
    for name, _, _, label, *sides in lines:
        box = "".join(f"<{side}>{value}</{side}>" for side, value in zip(_SIDES, sides, strict=True))
        thing = f"<object><part><name>head</name></part><name>{label}</name><bndbox>{box}</bndbox></object>"
        body = _WHOLE.format(name=name, width=WIDTH, height=HEIGHT, things=thing)
        (root / to / f"{Path(str(name)).stem}.xml").write_text(body)
    (root / "boxes.csv").unlink(missing_ok=True)
    return root


def coco_of(root: Path, part: slice = slice(None)) -> dict[str, Any]:
    """The boxes of the CSV, one an image, as COCO has them."""
    _, *lines = read_lines(root)
    ids = {"cat": 7, "dog": 90}
    images, annotations = [], []
    for number, (name, _, _, label, *sides) in list(enumerate(lines))[part]:
        left, top, right, bottom = map(float, sides)
        box = {"id": 500 + number, "image_id": number, "category_id": ids[str(label)], "iscrowd": 0}
        images.append({"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT})
        annotations.append(box | {"bbox": [left, top, right - left, bottom - top]})
    categories = [{"id": key, "name": name, "supercategory": "animal"} for name, key in ids.items()]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


def write_json(root: Path, found: object, name: str = "boxes.json") -> Path:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(json.dumps(found), "utf-8-sig")
    return root


# Photographs of each part, of ten.
PARTS = {"train": range(5), "valid": range(5, 8), "test": range(8, 10)}


def sort_files(root: Path, kinds: dict[str, str], parts: dict[str, range] = PARTS) -> Path:
    """Moves files to where a part has them: {"images/*.png": "{part}/images"}."""
    for pattern, to in kinds.items():
        for part, numbers in parts.items():
            folder = root / to.format(part=part)
            folder.mkdir(parents=True, exist_ok=True)
            for path in [path for path in root.glob(pattern) if int(path.stem) in numbers]:
                path.rename(folder / path.name)
    return root


def numbers_of(found: DataSpec) -> tuple[set[int], set[int]]:
    """The photographs of both sides."""
    meta = read_box_meta(Path(found.path))
    return {int(Path(n).stem) for n in meta.train}, {int(Path(n).stem) for n in meta.test}


def csv_parts(root: Path, place: str, parts: dict[str, range] = PARTS) -> Path:
    """The CSV as one for each part."""
    head, *lines = read_lines(root)
    (root / "boxes.csv").unlink()
    for part, numbers in parts.items():
        path = root / place.format(part=part)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, [head, *(lines[number] for number in numbers)])
    return root


def coco_parts(root: Path, place: str, parts: dict[str, range] = PARTS) -> Path:
    for part, numbers in parts.items():
        path = place.format(part=part)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_json(root, coco_of(root, slice(numbers.start, numbers.stop)), path)
    (root / "boxes.csv").unlink()
    return root


def csv_column(root: Path, name: str = "split", of: Callable[[str], str] = str) -> Path:
    head, *lines = read_lines(root)
    part = {number: part for part, numbers in PARTS.items() for number in numbers}
    write_table(root / "boxes.csv", [[*head, name], *([*line, of(part[n])] for n, line in enumerate(lines))])
    return root
