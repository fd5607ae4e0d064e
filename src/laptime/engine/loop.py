"""The epoch as an iterator: timing, profiling, logging and progress are consumers of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from laptime.optimizations.base import Parts
from laptime.optimizations.driver import Lap
from laptime.workloads.base import Counts


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
