"""Stored images as tensors of whole numbers, and which of them a limit keeps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laptime.data.limits import check_limit
from laptime.data.meta import BYTES_SCALE, Channels, read_meta
from laptime.errors import DataError
from laptime.spec import DataSpec


class Stored:
    """A split's images by where they stand, for other processes: by pickle go the file's name and the places in it.

    Args:
        path: of the array.
        rows: which of its images they are, int64 [N]; None for all.
    """

    def __init__(self, path: Path, rows: NDArray[np.int64] | None = None) -> None:
        self.path, self.rows = path, rows

    def __reduce__(self) -> tuple[type[Stored], tuple[Path, NDArray[np.int64] | None]]:
        return Stored, (self.path, self.rows)

    def __getitem__(self, index: int) -> NDArray[Any]:
        found: NDArray[Any] = self.whole[index if self.rows is None else self.rows[index]]
        return found

    @cached_property
    def whole(self) -> NDArray[Any]:
        """All images of the file, memory-mapped."""
        # Mode "c" (copy on write): torch warns of arrays that can't be written to, and the file must never change.
        return np.asarray(np.load(self.path, mmap_mode="c"))

    def limited(self, chosen: NDArray[np.int64]) -> Stored:
        """Those of them at some places."""
        return Stored(self.path, chosen if self.rows is None else self.rows[chosen])


@dataclass(frozen=True)
class Split:
    """One part of the data.

    Attributes:
        images: uint8 [N, H, W, 3] or int16 [N, H, W, bands]; whole splits are memory-mapped, copy on write.
        labels: int64 [N].
        stored: the images on disk; None where no file holds them.
    """

    images: Tensor
    labels: Tensor
    stored: Stored | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        """Bytes of the images."""
        return self.images.nbytes


@dataclass(frozen=True)
class ImageData:
    """A store, opened.

    Attributes:
        mean, std: per channel, of the training images scaled to 0..1.
        scale: the value that stands for 1.
    """

    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: Channels
    std: Channels
    scale: int = BYTES_SCALE


def open_tensors(data: DataSpec | Path | str) -> ImageData:
    """Opens a store's arrays as tensors, without reading the images.

    Raises:
        DataError: the store is missing, damaged or of another schema.
    """
    folder = Path(data.path if isinstance(data, DataSpec) else data)
    meta = read_meta(folder)
    splits = [_open(folder, name, len(meta.classes)) for name in ("train", "test")]
    return ImageData(splits[0], splits[1], meta.classes, meta.mean, meta.std, meta.scale)


def _open(folder: Path, split: str, classes: int) -> Split:
    stored = Stored(folder / f"{split}_images.npy")
    labels = np.load(folder / f"{split}_labels.npy")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(
            f"{folder / f'{split}_labels.npy'} holds labels from {labels.min()} to {labels.max()} and there are "
            f"{classes} classes: delete {folder} and fetch the data again (laptime data fetch)."
        )
    return Split(torch.from_numpy(stored.whole), torch.from_numpy(labels), stored)


def limit(split: Split, n: int | None, name: str = "train") -> Split:
    """The n images that a limit keeps (see `limited`), copied into memory; all of them for None.

    Raises:
        UsageError: n is below 1 or more than there are.
    """
    check_limit(name, len(split), n)
    if n is None or n == len(split):
        return split
    places = limited(split.labels.numpy(), n)
    chosen = torch.from_numpy(places)
    return Split(split.images[chosen], split.labels[chosen], split.stored and split.stored.limited(places))


def limited(labels: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """The indices [n] that a limit of n keeps.

    Shuffled within each class, and the classes in turn by their shares. The first images of all classes come first, so
    that a small n holds every class; a smaller n is a part of a larger one. The order is a property of the labels
    alone, the same for every seed and version of numpy.
    """
    # splitmix64's mixer (Steele, Lea, Flood 2014): numpy's own shuffle may change between versions.
    mixed = (np.arange(1, len(labels) + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    by_class = np.lexsort((mixed, labels))
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    share = np.empty(len(labels), dtype=np.float64)
    share[by_class] = np.arange(len(labels)) - starts[labels[by_class]]
    share /= counts[labels]
    return np.lexsort((labels, share))[:n].astype(np.int64)
