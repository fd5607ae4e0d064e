"""Training items that steps change: a loss writes into the data set, and the next epoch reads that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch

from laptime.data.own.opened import OwnSplit
from laptime.data.own.refused import same
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.trees import Tree, mapped, tensors

# What has read items before the steps that change them, or reads them in a process of its own.
_APART = ("resident", "decoded", "workers", "pinned", "ddp", "flat-reduce")
_WHY = "its loss() changes what its items are (soft labels, say), which items that were read before, or by another "


class Reread:
    """The first items of a split as they are before a step, read with the same random numbers each time.

    Items that are others with the same numbers, too, tell nothing.
    """

    def __init__(self, split: OwnSplit, count: int) -> None:
        self.split, self.few, self.drawn = split, range(count), drawn()
        self.before: Tree = None
        with suppress(Exception):  # whatever a user's code raises, sometimes: it was read before
            first = self._read()
            self.before = first if same(self._read(), first) else None

    def changed(self, step: Callable[[Tree], object] | None = None) -> bool:
        """Whether they are others now, and stay so: a rare augmentation by a generator of its own does not.

        Args:
            step: takes one step on a batch, where that may hold the data set's own tensors and not copies of them.
        """
        with suppress(Exception):  # as above
            if step is not None and self._handed_out():
                step(self.split.batch(self.few))
            now = self._read()
            return self.before is not None and not same(now, self.before) and same(self._read(), now)
        return False

    def _handed_out(self) -> bool:
        """Whether batches hold the very memory that the data set has, as two readings show."""
        one, other = (tensors(self.split.batch(self.few)) for _ in range(2))
        dense = [(a, b) for a, b in zip(one, other, strict=True) if a.layout == b.layout == torch.strided]
        return any(a.data_ptr() == b.data_ptr() for a, b in dense if a.numel())

    def _read(self) -> Tree:
        now = drawn()
        put_back_drawn(self.drawn)
        try:
            return mapped(self.split.batch(self.few), torch.clone)
        finally:
            put_back_drawn(now)


def fed_back(changed: bool, line: str) -> tuple[dict[str, str], str]:
    """What steps that change items leave out, with the reason, and what a user must know of it.

    Args:
        changed: whether they do.
        line: what gives the loss, with its line.
    """
    if not changed:
        return {}, ""
    told = (
        f"{line} changes what items of the training data are (soft labels, say), which goes on from the warm-up and is "
        "in no checkpoint: let the net of model() hold it in a buffer, by the samples' numbers."
    )
    return dict.fromkeys(_APART, f"{_WHY}process, do not show"), told
