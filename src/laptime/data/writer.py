"""Writes a store: arrays in blocks, checksums on the way, renamed into place when all is on the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from laptime.data.bands import FULL_SCALE
from laptime.data.disk import check_room, partial_folder, room_for, sync_folder
from laptime.data.meta import ARRAYS, BYTES_SCALE, META, Channels, Content, FileMeta, StoreMeta, digest_of
from laptime.data.store import Store
from laptime.errors import DataError
from laptime.records import write_json
from laptime.spec import DataKind

Images = NDArray[np.uint8] | NDArray[np.int16]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What will be written.

    Attributes:
        height, width: of every image.
        bands: which bands of multi-spectral images the channels are; none for RGB.
    """

    kind: DataKind
    asked: str
    classes: tuple[str, ...]
    train_count: int
    test_count: int
    height: int
    width: int
    bands: tuple[int, ...] = ()

    @property
    def channels(self) -> int:
        """Values of a pixel."""
        return len(self.bands) or 3

    @property
    def dtype(self) -> str:
        """Of the images."""
        return "int16" if self.bands else "uint8"

    @property
    def scale(self) -> int:
        """The value that stands for 1."""
        return FULL_SCALE if self.bands else BYTES_SCALE

    @property
    def size(self) -> int:
        """Bytes on the disk, headers and meta rounded up."""
        images = self.train_count + self.test_count
        return images * (self.height * self.width * self.channels * np.dtype(self.dtype).itemsize + 8) + 4096 * (
            len(ARRAYS) + 1
        )


class _ArrayFile:
    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, np.dtype(dtype), shape
        self.left = int(np.prod(shape)) * self.dtype.itemsize
        self._whole, self._content = hashlib.sha256(), hashlib.sha256()
        self._file = path.open("w+b")
        fields = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, fields)
        self._file.seek(0)
        self._whole.update(self._file.read())

    def add(self, block: NDArray[Any]) -> None:
        raw = np.ascontiguousarray(block, dtype=self.dtype).reshape(-1).view(np.uint8).data
        self._file.write(raw)
        self._whole.update(raw)
        self._content.update(raw)
        self.left -= raw.nbytes

    def finish(self) -> tuple[FileMeta, Content]:
        if self.left:
            raise DataError(f"{self.path.name} is {self.left} bytes short of what was planned: fetch the data again.")
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self.close()
        said = FileMeta(sha256=self._whole.hexdigest(), size=size, dtype=str(self.dtype), shape=self.shape)
        return said, Content(str(self.dtype), self.shape, self._content.hexdigest())

    def close(self) -> None:
        self._file.close()


class Writer:
    """Takes blocks of images and labels for `train` and `test`, in order."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.plan = plan
        self.folder = folder
        self._sums = np.zeros((2, plan.channels), dtype=np.int64)
        self._files: dict[str, _ArrayFile] = {}
        for split, count in (("train", plan.train_count), ("test", plan.test_count)):
            image_shape = (count, plan.height, plan.width, plan.channels)
            for name, dtype, shape in (
                (f"{split}_images", plan.dtype, image_shape),
                (f"{split}_labels", "int64", (count,)),
            ):
                self._files[name] = _ArrayFile(folder / f"{name}.npy", dtype, shape)

    def add(self, split: str, images: Images, labels: Labels) -> None:
        """Appends a block: images [B, H, W, channels], labels [B]."""
        self._files[f"{split}_images"].add(images)
        self._files[f"{split}_labels"].add(labels)
        if split == "train":
            # Integers, so that the sums are exact and do not depend on how the blocks were cut.
            values = np.arange(self.plan.scale + 1, dtype=np.int64)
            for channel in range(self.plan.channels):
                counts = np.bincount(images[..., channel].ravel(), minlength=len(values))
                self._sums[0, channel] += int(counts @ values)
                self._sums[1, channel] += int(counts @ (values * values))

    def finish(self, notice: str) -> StoreMeta:
        """Writes the files out and `meta.json` last; returns the meta."""
        done = {name: file.finish() for name, file in self._files.items()}
        mean, std = self._moments()
        plan = self.plan
        meta = StoreMeta(
            digest=digest_of(plan.classes, {name: content for name, (_, content) in done.items()}, plan.scale),
            kind=plan.kind,
            asked=plan.asked,
            classes=plan.classes,
            train_count=plan.train_count,
            test_count=plan.test_count,
            mean=mean,
            std=std,
            files={name: said for name, (said, _) in done.items()},
            notice=notice,
            scale=plan.scale,
            bands=plan.bands,
        )
        write_json(self.folder / META, meta.fields())
        with (self.folder / META).open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(self.folder)
        return meta

    def _moments(self) -> tuple[Channels, Channels]:
        scale, pixels = self.plan.scale, max(1, self.plan.train_count * self.plan.height * self.plan.width)
        means = [int(s) / pixels / scale for s in self._sums[0]]
        variances = [max(0.0, int(q) / pixels / scale**2 - m * m) for q, m in zip(self._sums[1], means, strict=True)]
        # A channel that never changes is divided by 1: nothing but zeros is left of it, and no NaN.
        return tuple(means), tuple(variance**0.5 or 1.0 for variance in variances)

    def close(self) -> None:
        """Closes what an error left open, each file even where a full disk takes no more of another."""
        with ExitStack() as files:
            for file in self._files.values():
                files.callback(file.close)


@contextmanager
def writing(store: Store, plan: Plan) -> Iterator[Writer]:
    """Opens a writer in a folder of its own; whatever goes wrong inside, nothing of it is left.

    The caller fills it and then calls `publish`.

    Raises:
        DataError: the disk is full, with the bytes needed.
    """
    with partial_folder(store.root) as folder, room_for(store.root, plan.size):
        check_room(store.root, plan.size)
        writer = Writer(folder, plan)
        try:
            yield writer
        finally:
            writer.close()


def publish(store: Store, writer: Writer, notice: str) -> StoreMeta:
    """Finishes a store and gives it its place, inside `writing`."""
    meta = writer.finish(notice)
    store.adopt(writer.folder, meta.digest)
    return meta
