"""Small data that tests make themselves: an image folder whose classes can be learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("blue", "green", "red")
_CHANNEL = {"red": 0, "green": 1, "blue": 2}


def write_folder(root: Path, train: int = 40, test: int = 10, size: int = 32) -> Path:
    """Writes `train/<class>` and `test/<class>` with that many images a class; the brightest channel is the class."""
    generator = np.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for name in CLASSES:
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 120, (size, size, 3), dtype=np.uint8)
                pixels[..., _CHANNEL[name]] += 100
                Image.fromarray(pixels).save(folder / f"{number:03}.png")
    return root
