"""The epoch as an iterator: timing, profiling, logging and progress are consumers of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from laptime.optimizations.base import Mark, Parts, unmarked
from laptime.optimizations.driver import Lap
from laptime.workloads.base import Batch, Counts


def train_epoch(p: Parts, index: int) -> Iterator[Counts]:
    """Trains one epoch, a step each time it is asked.

    Args:
        p: what the run was built into.
        index: which permutation of the samples to take.

    Yields:
        Loss sum, hits and count of the step, still on the device.
    """
    for batch in p.loader.epoch(index, p.mark):
        p.mark("data")
        yield p.step(p, batch)


def drive(p: Parts, index: int, lap: Lap, steps: int | None = None) -> None:
    """Walks through an epoch, or its first steps, and tells a lap: by the iterator, or by a trainer with its own loop.

    Args:
        p: what the run was built into.
        index: which permutation of the samples to take.
        lap: told of the epoch's begin, of each step and of its end.
        steps: how many; None for all.
    """
    if p.driver is not None:
        p.driver.drive(p, index, lap, steps)
        return
    lap.begin()
    for step in islice(train_epoch(p, index), steps):
        lap.step(step)
    lap.end()


class _One:
    """One batch as an epoch, and the lap that takes its counts."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.counts = batch, Counts(0.0, None, 0)

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        yield self.batch

    def __len__(self) -> int:
        return 1

    def begin(self) -> None: ...

    def step(self, counts: Counts) -> None:
        self.counts = counts

    def end(self) -> None: ...


def driven_step(p: Parts, batch: Batch) -> Tensor:
    """Has a trainer with its own loop take one step, and returns the loss; the gradients are left in the model.

    The weights have moved when it returns.
    """
    one = _One(batch)
    drive(replace(p, loader=one), 0, one, 1)
    return torch.as_tensor(one.counts.loss_sum) / one.counts.count
