"""Images and boxes as tensors, item by item: as the tutorials read them, with the CSV read once, and kept in memory.

Data sets are plain objects at the top of a module, so that loader processes can be spawned with them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from laptime.data.boxes.store import IMAGES, TABLE, fetch_again, read_box_meta
from laptime.data.decode import read_image
from laptime.data.limits import check_limit
from laptime.data.own.opened import OwnSplit
from laptime.data.own.weights import limit_order
from laptime.errors import DataError, shorten
from laptime.spec import DataSpec


class BoxItem(NamedTuple):
    """One image.

    Attributes:
        about: index in its split, height, width and count of boxes; numbers, so that they stay on the host.
        image: float32 [3, h, w].
        boxes: xmin, ymin, xmax, ymax in its pixels, float32 [n, 4].
        labels: from 1, since 0 is the background, int64 [n].
    """

    about: tuple[int, int, int, int]
    image: Tensor
    boxes: Tensor
    labels: Tensor


class BoxBatch(NamedTuple):
    """Images of any sizes in the left upper corners of one tensor; `about` says how much of a row is the sample's.

    Attributes:
        about: index, height, width and count of boxes of each; the host reads them in every step.
        images: float32 [B, 3, H, W].
        boxes: float32 [B, M, 4].
        labels: int64 [B, M].
    """

    about: tuple[tuple[int, int, int, int], ...]
    images: Tensor
    boxes: Tensor
    labels: Tensor


def collate(items: Sequence[BoxItem]) -> BoxBatch:
    """Puts items into one batch, on their device; what is smaller than the largest is filled with zeros."""
    on = items[0].image.device
    height, width = (max(item.image.shape[side] for item in items) for side in (1, 2))
    most = max(len(item.boxes) for item in items)
    batch = BoxBatch(
        tuple(item.about for item in items),
        torch.zeros(len(items), 3, height, width, device=on),
        torch.zeros(len(items), most, 4, device=on),
        torch.zeros(len(items), most, dtype=torch.int64, device=on),
    )
    for row, item in enumerate(items):
        batch.images[row, :, : item.image.shape[1], : item.image.shape[2]] = item.image
        batch.boxes[row, : len(item.boxes)] = item.boxes
        batch.labels[row, : len(item.labels)] = item.labels
    return batch


def rows(batch: BoxBatch) -> list[BoxItem]:
    """The items of a batch, as views; waits for no device.

    `trees.cut` cuts and repeats tensors alone, so rows and `about` are counted apart.
    """
    found = []
    for row in range(len(batch.images)):
        index, height, width, count = batch.about[row % len(batch.about)]
        image = batch.images[row, :, :height, :width]
        found.append(BoxItem((index, height, width, count), image, batch.boxes[row, :count], batch.labels[row, :count]))
    return found


class ReadAgain(Dataset[BoxItem]):
    """The tutorials' data set: each item reads the whole CSV again and opens its image from disk."""

    def __init__(self, folder: Path, names: tuple[str, ...], classes: tuple[str, ...]) -> None:
        self.folder, self.names, self.classes = folder, names, classes

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> BoxItem:
        return self._item(index, read_table(self.folder, self.classes).get(self.names[index], []))

    def _item(self, index: int, lines: Sequence[tuple[float, ...]]) -> BoxItem:
        pixels = torch.from_numpy(read_image(self.folder / IMAGES / self.names[index]).copy())
        image = pixels.permute(2, 0, 1).contiguous().to(torch.float32).div_(255)
        values = torch.tensor(lines, dtype=torch.float32).reshape(-1, 5)
        about = (index, image.shape[1], image.shape[2], len(values))
        return BoxItem(about, image, values[:, 1:], values[:, 0].to(torch.int64))


class ParsedOnce(ReadAgain):
    """The same with the CSV read when it is made."""

    def __init__(self, folder: Path, names: tuple[str, ...], classes: tuple[str, ...]) -> None:
        super().__init__(folder, names, classes)
        table = read_table(folder, classes)
        check_sides(folder, table)
        self.lines = [table.get(name, []) for name in names]

    def __getitem__(self, index: int) -> BoxItem:
        return self._item(index, self.lines[index])


class Kept(Dataset[BoxItem]):
    """Items that were read, changed and kept in memory."""

    def __init__(self, items: Sequence[BoxItem]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> BoxItem:
        return self.items[index]


def read_table(folder: Path, classes: tuple[str, ...]) -> dict[str, list[tuple[float, ...]]]:
    """Label and sides of each box of a store, by the image's name.

    The baseline reads it again for each item, so what a line says is not weighed here (see `check_sides`).

    Raises:
        DataError: it can't be read, or is no CSV as a store holds it.
    """
    path, numbers = folder / TABLE, {name: float(label) for label, name in enumerate(classes, start=1)}
    found: dict[str, list[tuple[float, ...]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if line["xmin"] != "":  # None, which is no number, where the line was cut off
                    sides = (float(line[side]) for side in ("xmin", "ymin", "xmax", "ymax"))
                    found.setdefault(line["filename"], []).append((numbers[line["class"]], *sides))
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}): {fetch_again(folder)}.") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        said = shorten(f"{type(error).__name__}: {error}")
        raise DataError(f"{path} is damaged ({said}): {fetch_again(folder)}.") from error
    return found


def check_sides(folder: Path, table: dict[str, list[tuple[float, ...]]]) -> None:
    """Refuses boxes without an area, as training sees them: none was stored; raises DataError."""
    for name, lines in table.items():
        sides = torch.tensor(lines, dtype=torch.float64).to(torch.float32)[:, 1:]
        if not (sides.isfinite().all() and (sides[:, 2:] > sides[:, :2]).all()):
            raise DataError(
                f"{folder / TABLE} is damaged (a box on {shorten(name)} has no area): {fetch_again(folder)}."
            )


class Boxes(Protocol):
    """A data set of images with boxes."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> BoxItem: ...


class BoxSplit(OwnSplit):
    """One part of the data; the bytes of an item are those of the largest image, as float32."""

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all items, by those of the first few."""
        some = [self.dataset[i] for i in range(min(8, len(self)))]
        return len(self) * int(sum(item.image.nbytes for item in some)) // max(1, len(some))


@dataclass(frozen=True)
class BoxData:
    """A store of boxes, opened.

    Attributes:
        train: read as the tutorials do, until an optimization changes that.
        test: read with the CSV parsed once, since evaluation is outside the counted time.
        largest: height and width that hold every image.
        side: pixels that the shorter side of an image becomes; None for the catalogue's.
    """

    train: BoxSplit
    test: BoxSplit
    classes: tuple[str, ...]
    largest: tuple[int, int]
    side: int | None = None

    @property
    def item_bytes(self) -> int:
        """Of the largest image on its way through the loader."""
        return 3 * 4 * self.largest[0] * self.largest[1]

    def changed(self, change: Callable[[Boxes], Boxes], test: bool = True) -> BoxData:
        """The same with other data sets, of the training alone where `test` is false."""
        return replace(
            self,
            train=BoxSplit(change(self.train.dataset), collate),
            test=BoxSplit(change(self.test.dataset), collate) if test else self.test,
        )


def open_boxes(data: DataSpec, limit_train: int | None = None, limit_test: int | None = None) -> BoxData:
    """Opens a store's data, within limits; raises DataError or UsageError."""
    folder = Path(data.path)
    meta = read_box_meta(folder)
    kept = [
        _limited(name, names, limit)
        for name, names, limit in (("train", meta.train, limit_train), ("test", meta.test, limit_test))
    ]
    train: Dataset[Any] = ReadAgain(folder, kept[0], meta.classes)
    test: Dataset[Any] = ParsedOnce(folder, kept[1], meta.classes)
    return BoxData(BoxSplit(train, collate), BoxSplit(test, collate), meta.classes, meta.largest, meta.side)


def _limited(split: str, names: tuple[str, ...], limit: int | None) -> tuple[str, ...]:
    """The names that a limit keeps: a smaller limit's are among a larger one's, in the data's order."""
    check_limit(split, len(names), limit)
    return tuple(names[i] for i in sorted(limit_order(len(names))[:limit].tolist()))
