"""What a file of boxes says, and what of it is left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from laptime.data.boxes.box import Box, above, digits, refused
from laptime.places import composed

# Pixels by which a box may reach beyond its image: tools round corners and sizes apart from each other.
_ROUNDED = 1
# Less is what the digits of a file leave, and nothing to tell.
_TOLD = 0.1

Unnamed = Literal["background", "background beside others", "left out"]


@dataclass
class Annotated:
    """The boxes of one file, or of the files of one folder, and counts of what was changed or left out.

    Attributes:
        form: a sentence that says what was read; empty for a CSV.
        boxes: as they are trained on; one without sides for each image that is said to have none.
        unnamed: what images are that nothing here names: background, background where they lie in a folder with
            images that are named, or left out, since they may show anything.
        crowds: boxes around many things at once, left out.
        difficult: boxes that are marked as difficult.
        polygons: boxes around a polygon.
        cut: boxes that reached beyond their image by a pixel at most.
        empty: boxes without an area.
    """

    form: str = ""
    boxes: list[Box] = field(default_factory=list)
    unnamed: Unnamed = "left out"
    crowds: int = 0
    difficult: int = 0
    polygons: int = 0
    cut: int = 0
    empty: int = 0

    def add(self, image: str, label: str, sides: tuple[float, ...], place: str, size: tuple[float, float]) -> None:
        """Adds one box, cut to its image of a width and a height in pixels, unless nothing is left of it.

        Raises:
            DataError: its right side is left of its left one, or its lower one above the upper one.
        """
        limits = (*size, *size)
        within = tuple(
            min(max(value, 0.0), limit) if -_ROUNDED <= value <= limit + _ROUNDED else value
            for value, limit in zip(sides, limits, strict=True)
        )
        for name, low, high in zip("xy", within[:2], within[2:], strict=True):
            if high < low:
                said = f"{name}max {digits(high)} is not above {name}min {digits(low)}"
                raise refused(place, f"{said}: correct or remove it")
        if not (above(within[2], within[0]) and above(within[3], within[1])):
            self.empty += 1
            self.bare(image, place)
            return
        self.cut += any(abs(one - other) > _TOLD for one, other in zip(within, sides, strict=True))
        self.boxes.append(Box(image, composed(label), within, place, tuple(f"{side:g}" for side in size)))

    def bare(self, image: str, place: str) -> None:
        """Adds an image that may have no box."""
        self.boxes.append(Box(image, "", (), place))

    def join(self, other: Annotated) -> None:
        """Adds what another file of the same form says."""
        self.boxes += other.boxes
        self.unnamed = other.unnamed
        self.crowds += other.crowds
        self.difficult += other.difficult
        self.polygons += other.polygons
        self.cut += other.cut
        self.empty += other.empty

    def said(self) -> list[str]:
        """A sentence for the form, and one for each kind of box that was changed or left out."""
        counts = (
            (self.crowds, "box(es) around a crowd (iscrowd) are left out, as torchvision's reference training does."),
            (
                self.difficult,
                "box(es) marked as difficult are boxes as any other, in the test, too, where Pascal VOC's own score "
                "passes over them.",
            ),
            (self.polygons, "polygon(s) are read as the boxes around them."),
            (self.empty, "box(es) without an area are left out."),
            (self.cut, "box(es) that reach beyond the edge by a pixel at most are cut there."),
        )
        return ([self.form] if self.form else []) + [f"{count} {what}" for count, what in counts if count]
