"""Stored images as tensors of whole numbers: the only module of the data layer that imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laptime.data.limits import check_limit
from laptime.data.meta import BYTES_SCALE, Channels, read_meta
from laptime.data.order import limited
from laptime.errors import DataError
from laptime.spec import DataSpec


@dataclass(frozen=True)
class Split:
    """One part of the data.

    Attributes:
        images: uint8 [N, H, W, 3] or int16 [N, H, W, bands]; whole splits are memory-mapped, copy on write.
        labels: int64 [N].
    """

    images: Tensor
    labels: Tensor

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
    # Mode "c" (copy on write): torch warns of arrays that can't be written to, and the file must never change.
    images = np.load(folder / f"{split}_images.npy", mmap_mode="c")
    labels = np.load(folder / f"{split}_labels.npy")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(
            f"{folder / f'{split}_labels.npy'} holds labels from {labels.min()} to {labels.max()} and there are "
            f"{classes} classes: delete {folder} and fetch the data again (laptime data fetch)."
        )
    return Split(torch.from_numpy(images), torch.from_numpy(labels))


def limit(split: Split, n: int | None, name: str = "train") -> Split:
    """The n images that a limit keeps (see `order.limited`), copied into memory; all of them for None.

    Raises:
        UsageError: n is below 1 or more than there are.
    """
    check_limit(name, len(split), n)
    if n is None or n == len(split):
        return split
    chosen = torch.from_numpy(limited(split.labels.numpy(), n))
    return Split(split.images[chosen], split.labels[chosen])
