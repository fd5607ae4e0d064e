"""The epoch as an iterator: timing, profiling, logging and progress are consumers of it."""

from __future__ import annotations

from collections.abc import Iterator

from laptime.optimizations.base import Parts
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
