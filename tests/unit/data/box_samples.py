"""Small photographs with boxes that the tests of detection's data make."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from laptime.data.box_columns import COLUMNS

WIDTH, HEIGHT = 60, 40


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
