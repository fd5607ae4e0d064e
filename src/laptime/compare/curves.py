"""Learning curves of the variants, as data: the mean of the processes at each counted epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from laptime.compare.model import Comparison
from laptime.compare.quality import LOWER_IS_BETTER, final_quality
from laptime.records import EpochRecord, RunRecord


@dataclass(frozen=True)
class Curve:
    """One variant's course.

    Attributes:
        epochs: counted epochs, from 1.
        seconds: training seconds at the end of each, mean over processes.
        loss: test loss, or training loss where no test loss was recorded; NaN where missing.
        quality: test quality from 0 to 1; NaN where missing.
    """

    variant: str
    epochs: tuple[int, ...]
    seconds: tuple[float, ...]
    loss: tuple[float, ...]
    quality: tuple[float, ...]
    loss_name: str


def curves(comparison: Comparison, records: Sequence[RunRecord]) -> list[Curve]:
    """The curves of all variants that finished and are drawn, in the order of the table."""
    tested = any(e.test_loss is not None for r in records for e in r.epochs)
    loss = "test_loss" if tested else "train_loss"
    found = []
    for row in comparison.drawn:
        mine = [r for r in records if r.status == "done" and r.spec and r.spec.variant == row.variant]
        if row.epoch_s is not None and mine:
            found.append(_curve(row.variant, mine, loss, f"test_{comparison.conditions.quality}"))
    return found


def _curve(variant: str, records: Sequence[RunRecord], loss: str, quality: str) -> Curve:
    seconds = [_so_far(r) for r in records]
    at: dict[int, list[EpochRecord]] = {}
    for record in records:
        for epoch in record.epochs:
            at.setdefault(epoch.index, []).append(epoch)
    indexes = sorted(at)
    return Curve(
        variant=variant,
        epochs=tuple(i + 1 for i in indexes),
        seconds=tuple(fmean(s[i] for s in seconds if i in s) for i in indexes),
        loss=tuple(_mean(at[i], loss) for i in indexes),
        quality=tuple(_mean(at[i], quality) for i in indexes),
        loss_name=loss.replace("_", " "),
    )


def _so_far(record: RunRecord) -> dict[int, float]:
    """Training seconds at the end of each epoch; added up where the record does not say."""
    total, found = 0.0, {}
    for epoch in sorted(record.epochs, key=lambda e: e.index):
        total = epoch.train_s_so_far if epoch.train_s_so_far is not None else total + epoch.epoch_s
        found[epoch.index] = total
    return found


def _mean(epochs: Sequence[EpochRecord], name: str) -> float:
    known = [v for e in epochs if (v := getattr(e, name, None)) is not None and math.isfinite(v)]
    return fmean(known) if known else math.nan


def time_to_quality(records: Sequence[RunRecord], quality: str, target: float | None) -> float | None:
    """Training seconds until a variant first reached a quality: the median over its processes.

    A process that never reached it counts as infinitely slow; None where the median is such. Without a target
    each process is to reach its own final quality: so the baseline has a time, though half of its processes
    end below their mean.
    """
    goals = [final_quality(r, quality) if target is None else target for r in records]
    times = [math.inf if g is None else _first_reached(r, quality, g) for r, g in zip(records, goals, strict=True)]
    middle = median(times) if times else math.inf
    return middle if math.isfinite(middle) else None


def _first_reached(record: RunRecord, quality: str, target: float) -> float:
    so_far = 0.0
    for epoch in sorted(record.epochs, key=lambda e: e.index):
        so_far = epoch.train_s_so_far if epoch.train_s_so_far is not None else so_far + epoch.epoch_s
        value = getattr(epoch, f"test_{quality}", None)
        if value is not None and (value <= target if quality in LOWER_IS_BETTER else value >= target):
            return so_far
    return math.inf
