"""Shares of an epoch and of a step by part, from breakdowns where there are some."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from laptime.records import Breakdown, EpochRecord

# The order of a step; what a user's own loop marks otherwise follows.
ORDER = ("first_batch", "data", "copy", "step", "forward", "backward", "optimizer", "read")


def parts_of(epochs: Sequence[EpochRecord]) -> dict[str, float]:
    """Median share of each part of an epoch, 1 in sum; what no part holds is `rest`."""
    spent = [_shares(e) for e in epochs]
    names = ordered(dict.fromkeys(n for s in spent for n in s))
    shares = {n: median([s.get(n, 0.0) for s in spent]) for n in names}
    total = sum(shares.values())
    if total <= 0:
        return {}
    if total < 1:
        return shares | {"rest": shares.get("rest", 0.0) + 1 - total}
    return {n: s / total for n, s in shares.items()}


def _shares(epoch: EpochRecord) -> dict[str, float]:
    """Of one epoch: the wait for the first batch, and the mean step's parts in the time that is left."""
    breakdown = epoch.breakdown
    steps = mean_shares([breakdown]) if breakdown is not None else {}
    if breakdown is None or not steps:
        return {n: max(s, 0.0) / epoch.epoch_s for n, s in epoch.parts_s.items()}
    first = min(max(breakdown.first_batch_s or 0.0, 0.0) / epoch.epoch_s, 1.0)
    return {"first_batch": first} | {n: s * (1 - first) for n, s in steps.items()}


def mean_shares(found: Sequence[Breakdown]) -> dict[str, float]:
    """Shares of the mean step by part, 1 in sum: every step counts alike."""
    totals: dict[str, float] = {}
    for breakdown in found:
        for name, value in breakdown.mean_ms.items():
            totals[name] = totals.get(name, 0.0) + max(value, 0.0) * breakdown.steps
    whole = math.fsum(totals.values())  # alike in every Python: since 3.12 its sum() rounds otherwise
    return {n: totals[n] / whole for n in ordered(totals)} if whole > 0 else {}


def ordered(names: Iterable[str]) -> list[str]:
    """Parts in the order of a step; others after them, `rest` at the end."""
    known = list(names)
    others = [n for n in known if n not in ORDER and n != "rest"]
    return [*(n for n in ORDER if n in known), *others, *(n for n in known if n == "rest")]
