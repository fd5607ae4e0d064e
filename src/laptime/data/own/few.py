"""A user's data cut down to a few samples in memory, for trials of steps, which don't ask how samples are read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from laptime.data.own.opened import OwnData, OwnSplit
from laptime.values.trees import leaves

# Of photographs of 24 megapixels, a tenth of a second each, some dozens are read.
_READ_S = 5.0
_READ_BYTES = 1 << 30


@dataclass(frozen=True)
class InTurn:
    """A data set of some items in memory, one after the other and again from the first, `count` in all."""

    items: Sequence[Any]
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.items[index % len(self.items)]


def few_in_memory(data: OwnData, batch: int, usual: int) -> OwnData:
    """The data with its first training samples read once, and as many of them in turn as there were.

    Args:
        data: as it was opened; it ends after one batch where more would take too much memory.
        batch: samples of a step.
        usual: those of a step of the user's own, for which there is room.

    Raises:
        MemoryError: a batch is larger than the user's own and takes more than a trial may.
    """
    items, nbytes = few_items(data.train)
    room = _READ_BYTES * len(items) // max(1, nbytes)  # in samples
    if batch > max(usual, room):
        raise MemoryError(f"{batch} samples take {batch * nbytes // len(items) >> 20:,} MiB before any layer")
    count = min(len(data.train), max(batch, room))
    return replace(data, train=replace(data.train, dataset=InTurn(items, count), weights=None, begin=None))


def few_items(split: OwnSplit) -> tuple[list[Any], int]:
    """The first items of a split, at least one, and their bytes: as many as can be read within the bounds."""
    begin, items, nbytes = time.monotonic(), list[Any](), 0
    for index in range(len(split)):
        items.append(split.dataset[index])
        nbytes += sum(getattr(leaf, "nbytes", 0) for leaf in leaves(items[-1]))
        if time.monotonic() - begin > _READ_S or nbytes > _READ_BYTES:
            break
    return items, nbytes
