"""Samples a second of runs and their share of the machine's ceiling: one formula for all who show them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from laptime.records.machine import Ceilings
from laptime.records.run import EpochRecord, RunRecord


def counts(epoch: EpochRecord) -> bool:
    """Records of a user's own loop may hold anything; a time that is no positive number is none."""
    return math.isfinite(epoch.epoch_s) and epoch.epoch_s > 0


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is known and finite; None of nothing."""
    known = [v for v in values if v is not None and math.isfinite(v)]
    return median(known) if known else None


def rate(done: Sequence[RunRecord]) -> float | None:
    """Samples a second: one over the median over processes of the median over kept epochs of a sample's seconds.

    Of times and not of rates, so that it is an epoch's samples over the epoch's seconds that are shown beside it: the
    middle of two epochs is their mean, and the mean of two rates is another one.
    """
    pace = middle(middle(_paces(r)) for r in done)
    return 1 / pace if pace else None


def _paces(record: RunRecord) -> list[float]:
    """Seconds by sample: of each epoch, or of all where they are one lap."""
    epochs = [e for e in record.kept if counts(e) and e.samples > 0]
    if epochs and len(record.laps) < len(record.kept):
        return [sum(e.epoch_s for e in epochs) / sum(e.samples for e in epochs)]
    return [e.epoch_s / e.samples for e in epochs]


def ceiling_share(done: Sequence[RunRecord], ceilings: Ceilings) -> float | None:
    """Model flops utilization: samples/s times operations a sample, over measured operations/s; above 1 as it is.

    A ceiling is that of the CPU, which ranks share, or of one GPU, of which each rank has its own.

    Args:
        done: records of one variant.
        ceilings: for records that hold none of their own.
    """
    if not done:
        return None
    first, precision = done[0], done[0].precision
    gpus = first.ranks if first.spec is not None and first.spec.device == "cuda" else 1
    measured = middle(r.machine.ceilings.best(precision) for r in done)
    best = gpus * (measured or ceilings.best(precision) or 0.0)
    samples_per_s, flops = rate(done), middle(r.flops_per_sample for r in done)
    if samples_per_s is None or not flops or not best:
        return None
    return samples_per_s * flops / (best * 1e9)
