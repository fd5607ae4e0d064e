"""What base's epochs did from gate to gate: a slope, and the gates since which they have been others. Advisory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from laptime.tracking.gates import PastGate

_FEWEST = 6
_DAY_S = 86400.0
_MONTH_S = 30 * _DAY_S
# A change that chance makes once in a hundred series without one, and that is worth a look.
_CERTAIN = 0.01
_SMALLEST = math.log(1.03)


@dataclass(frozen=True)
class Slope:
    """Change of the epoch's seconds in 30 days, as a ratio, with its interval of 95 % (Theil and Sen)."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """The first gate after a change of level, and the medians before and since."""

    gate: PastGate
    before_s: float
    since_s: float


@dataclass(frozen=True)
class Trend:
    """One fingerprint's gates, the oldest first.

    Attributes:
        gates: those with counted pairs.
        seconds: base's median epoch in each.
        slope: None below six gates or within a day.
    """

    fingerprint: str
    variant: str
    gates: tuple[PastGate, ...]
    seconds: tuple[float, ...]
    slope: Slope | None
    changes: tuple[Change, ...]


def trends(gates: Sequence[PastGate]) -> list[Trend]:
    """The trends of gates, one for each fingerprint: times of others can't be compared."""
    by_print: dict[str, list[PastGate]] = {}
    for gate in sorted(gates, key=lambda g: g.started_at):
        if gate.base_epoch_s:
            by_print.setdefault(gate.fingerprint, []).append(gate)
    return [_trend(name, tuple(found)) for name, found in by_print.items()]


def _trend(fingerprint: str, gates: tuple[PastGate, ...]) -> Trend:
    seconds = tuple(median(g.base_epoch_s) for g in gates)
    places = change_points([math.log(s) for s in seconds])
    borders = [0, *places, len(gates)]
    levels = [median(seconds[a:b]) for a, b in pairwise(borders)]
    changes = tuple(
        Change(gates[place], before, since) for place, (before, since) in zip(places, pairwise(levels), strict=True)
    )
    return Trend(fingerprint, gates[-1].variant, gates, seconds, _slope(gates, seconds), changes)


def _slope(gates: Sequence[PastGate], seconds: Sequence[float]) -> Slope | None:
    if len(gates) < _FEWEST or gates[-1].started_at - gates[0].started_at < _DAY_S:
        return None
    from scipy.stats import theilslopes

    months = [g.started_at / _MONTH_S for g in gates]
    found = theilslopes([math.log(s) for s in seconds], months, 0.95)
    return Slope(*(math.exp(x) for x in (found.slope, found.low_slope, found.high_slope)))


def change_points(values: Sequence[float]) -> list[int]:
    """Where a series changes its level: index of the first value of each new one.

    Pettitt's test ("A non-parametric approach to the change-point problem", Applied Statistics 28, 1979), applied to
    the whole and then to both parts: it asks only for ranks, so a spike is no change. Below about 16 values its
    approximate p never comes under 1 %.
    """
    place, p = _pettitt(values)
    if p > _CERTAIN or abs(median(values[place:]) - median(values[:place])) < _SMALLEST:
        return []
    return [*change_points(values[:place]), place, *(place + i for i in change_points(values[place:]))]


def _pettitt(values: Sequence[float]) -> tuple[int, float]:
    """The likeliest change (index of the first value after it) and how likely chance makes one as large."""
    n, total, best, place = len(values), 0, 0, 0
    for i in range(n - 1):
        total += sum((values[i] > v) - (values[i] < v) for v in values)
        if abs(total) > best:
            best, place = abs(total), i + 1
    return place, (2 * math.exp(-6 * best**2 / (n**3 + n**2)) if best else 1.0)
