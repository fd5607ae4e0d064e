"""Photographs with what a detector found on them, as files of their own: a box, its class and score in one colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from laptime.data.decode import Images
from laptime.errors import DataError, printable, shorten
from laptime.records import Found

# Distinct on photographs, for people with dyschromatopsia too (Okabe and Ito), each light enough for black letters.
_COLOURS = ("#e69f00", "#56b4e9", "#f0e442", "#3fc89e", "#ef8a4c", "#e39bc6")
# Shares of the longer side, and the pixels that they are at least.
_LINE, _LEAST_LINE = 1 / 400, 2
_LETTERS, _LEAST_LETTERS = 1 / 45, 11
_QUALITY = 92


class Drawings:
    """A folder of drawn photographs, made with the first of them, in which nothing is ever overwritten."""

    def __init__(self, folder: Path, classes: Sequence[str]) -> None:
        self.folder = folder
        self._colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(classes)}
        self._taken: set[str] = set()

    def add(self, name: str, image: Images, boxes: Sequence[Found]) -> Path:
        """Writes one photograph as JPEG, called as its file; of several of one name the later ones get a number.

        Args:
            name: the photograph's file.
            image: uint8 [H, W, 3].
            boxes: what was found on it; the surest is drawn last, above the others.

        Raises:
            DataError: the folder can't be written, or holds a file of that name.
        """
        drawn = Image.fromarray(image)
        for box in reversed(boxes):
            _draw(drawn, box, self._colours[box.name])
        path = self.folder / self._free(Path(name).stem)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                drawn.save(file, "JPEG", quality=_QUALITY)
        except OSError as error:
            raise DataError(
                f"{path} can't be written ({error.strerror or error}): give --draw another folder."
            ) from error
        return path

    def _free(self, stem: str) -> str:
        """A name of this run's own, in any case of letters, which some file systems pass over."""
        name, number = f"{stem}.jpg", 1
        while name.lower() in self._taken:
            number += 1
            name = f"{stem}-{number}.jpg"
        self._taken.add(name.lower())
        return name


def _draw(image: Image.Image, box: Found, colour: str) -> None:
    """A box, and above it, or inside where there is no room, its class and score on its colour."""
    pen, side = ImageDraw.Draw(image), max(image.size)
    line = max(_LEAST_LINE, round(side * _LINE))
    font = ImageFont.load_default(max(_LEAST_LETTERS, round(side * _LETTERS)))
    pen.rectangle((box.xmin, box.ymin, box.xmax, box.ymax), outline=colour, width=line)
    text = f"{shorten(printable(box.name), 40)} {box.score * 100:.0f} %"
    _, _, width, height = pen.textbbox((line, line), text, font=font)
    left = max(0.0, min(box.xmin, image.width - width - line))
    top = box.ymin - height - line if box.ymin >= height + line else box.ymin
    pen.rectangle((left, top, left + width + line, top + height + line), fill=colour)
    pen.text((left + line, top + line), text, fill="black", font=font)
