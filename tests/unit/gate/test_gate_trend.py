"""Base's epochs from gate to gate."""

from __future__ import annotations

import math
import random

import pytest

from laptime.gate.trend import change_points, trends
from laptime.tracking.gates import PastGate

DAY_S = 86400.0


def past(number: int, seconds: float, fingerprint: str = "f") -> PastGate:
    noise = (0.99, 1.0, 1.01)
    return PastGate(
        id=f"g{number}",
        started_at=1_700_000_000.0 + number * DAY_S,
        mode="gate",
        verdict="not_regressed",
        variant="cpu-baseline",
        fingerprint=fingerprint,
        base=f"{number:040x}",
        head="",
        base_epoch_s=tuple(seconds * f for f in noise),
        log_ratios=(0.0, 0.01, -0.01),
    )


def series(levels: list[tuple[int, float]], cv: float = 0.01, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [math.log(level) + draw.gauss(0, cv) for count, level in levels for _ in range(count)]


def test_changes_are_found_where_they_are():
    assert change_points(series([(15, 2.0), (15, 2.3)])) == [15]
    assert change_points(series([(20, 2.0), (20, 2.3), (20, 1.8)])) == [20, 40]


def test_a_spike_a_small_step_and_a_short_series_are_none():
    spiked = series([(40, 2.0)])
    spiked[20] += 1.0
    assert change_points(spiked) == []
    assert change_points(series([(30, 2.0), (30, 2.04)], cv=0.001)) == []
    assert change_points(series([(5, 2.0), (5, 3.0)])) == []
    assert change_points([]) == []


def test_hardly_any_change_is_found_where_there_is_none():
    found = sum(bool(change_points(series([(40, 2.0)], cv=0.03, seed=seed))) for seed in range(400))
    assert found <= 8


def test_trends_are_told_apart_by_fingerprint():
    gates = [past(n, 2.0 * 1.002**n) for n in range(30)] + [past(n, 9.0, "other") for n in (40, 41, 42)]
    slow, other = trends(gates[::-1])
    assert (slow.fingerprint, len(slow.gates), other.slope) == ("f", 30, None)
    assert slow.gates[0].id == "g0"
    assert slow.slope.ratio == pytest.approx(1.002**30, rel=1e-6)
    assert slow.slope.low <= slow.slope.ratio <= slow.slope.high
    change = slow.changes[0]
    assert change.since_s > change.before_s
    assert trends([]) == []
