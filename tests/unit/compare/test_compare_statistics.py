from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from laptime.compare import words
from laptime.compare.statistics import Bootstrap, Laps, epoch_seconds, mean_ratio, student


def laps(name: str, *processes: tuple[float, ...], first: int = 0) -> Laps:
    return Laps(name, tuple(range(first, first + len(processes))), processes)


SLOW = laps(
    "slow",
    (10.0, 10.2, 9.9),
    (11.0, 11.3, 10.9),
    (10.4, 10.5, 10.1),
    (9.8, 9.7, 10.0),
    (10.6, 10.3, 10.2),
    (10.9, 10.8, 10.7),
)
FAST = laps(
    "fast", (5.1, 5.0, 4.9), (5.4, 5.6, 5.5), (5.2, 5.3, 5.1), (4.8, 5.0, 4.9), (5.2, 5.1, 5.3), (5.6, 5.3, 5.5)
)


def test_point_is_median_over_processes_of_median_over_epochs() -> None:
    assert epoch_seconds(laps("a", (1.0, 9.0, 2.0), (4.0,), (3.0, 5.0))) == 4.0
    assert epoch_seconds(laps("b", (1.0, 2.0, 4.0, 8.0))) == 3.0


def test_student_matches_the_tables() -> None:
    assert student(0.975, 2) == pytest.approx(4.302653, abs=1e-5)
    assert student(0.975, 9) == pytest.approx(2.262157, abs=1e-5)


def test_same_input_same_interval_and_other_seed_another() -> None:
    assert Bootstrap().ratio(SLOW, FAST) == Bootstrap().ratio(SLOW, FAST)
    assert Bootstrap(seed=1).ratio(SLOW, FAST) != Bootstrap().ratio(SLOW, FAST)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_scaling_all_times_changes_nothing(n: int) -> None:
    slow, fast = SLOW.only(range(n)), FAST.only(range(n))
    scaled = [replace(v, epochs=tuple(tuple(1000 * t for t in p) for p in v.epochs)) for v in (slow, fast)]
    plain, large = Bootstrap().ratio(slow, fast), Bootstrap().ratio(*scaled)
    assert (large.point, large.low, large.high) == pytest.approx((plain.point, plain.low, plain.high))


@pytest.mark.parametrize("shift", [0, 100], ids=["paired", "apart"])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_swapping_inverts(n: int, shift: int) -> None:
    slow, fast = SLOW.only(range(n)), FAST.only(range(n))
    fast = replace(fast, rounds=tuple(r + shift for r in fast.rounds))
    there, back = Bootstrap().ratio(slow, fast), Bootstrap().ratio(fast, slow)
    assert there.low is not None
    assert there.high is not None
    assert (back.point, back.low, back.high) == pytest.approx(
        (1 / there.point, 1 / there.high, 1 / there.low), rel=1e-6
    )


def test_one_process_has_no_interval() -> None:
    one = Bootstrap().ratio(SLOW.only([0]), FAST)
    assert (one.low, one.high, one.n) == (None, None, 1)
    assert Bootstrap().time(FAST.only([2])).low is None


def test_only_common_rounds_are_compared() -> None:
    found = Bootstrap().ratio(SLOW, FAST.only([1, 3]))
    assert found.n == 2
    assert found.point == pytest.approx(epoch_seconds(SLOW.only([1, 3])) / epoch_seconds(FAST.only([1, 3])))


def test_pairing_removes_what_a_round_does_to_all() -> None:
    drift = [1.0, 1.4, 1.1, 1.8, 1.2, 0.9]
    slow = laps("slow", *((10 * d, 10.1 * d) for d in drift))
    fast = laps("fast", *((5 * d, 5.05 * d) for d in drift))
    paired = Bootstrap().ratio(slow, fast)
    apart = Bootstrap().ratio(slow, replace(fast, rounds=tuple(range(10, 16))))
    assert paired.high is not None
    assert paired.low is not None
    assert apart.high is not None
    assert apart.low is not None
    assert paired.high / paired.low < 1.05
    assert apart.high / apart.low > 1.3


def test_rounds_that_occur_twice_are_not_paired() -> None:
    unnumbered = replace(FAST, rounds=(0,) * FAST.n)
    assert Bootstrap().ratio(SLOW, unnumbered).n == FAST.n


def test_processes_of_different_length() -> None:
    found = Bootstrap().time(laps("a", (1.0,), (1.1, 1.2, 1.3), (0.9, 1.0)))
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < 1.0 < found.high < math.inf


def test_blocks_bound_the_memory_of_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laptime.compare.statistics.BLOCK", 40)
    found = Bootstrap(resamples=50).time(SLOW)
    assert found.low is not None


def _coverage(n: int, epochs: int, cases: int = 150) -> float:
    """Share of intervals that hold the true ratio 2, with 5 % drift by round, 1 % by process and 1 % by epoch."""
    draw = np.random.default_rng(7)
    hit = 0
    for _ in range(cases):
        drift = draw.normal(0, 0.05, n)[:, None]
        logs = [drift + draw.normal(0, 0.01, (n, 1)) + draw.normal(0, 0.01, (n, epochs)) for _ in range(2)]
        slow, fast = (
            laps(name, *(tuple(float(t) for t in p) for p in scale * np.exp(log)))
            for name, scale, log in (("slow", 2.0, logs[0]), ("fast", 1.0, logs[1]))
        )
        found = Bootstrap(resamples=500).ratio(slow, fast)
        assert found.low is not None
        assert found.high is not None
        hit += found.low <= 2.0 <= found.high
    return hit / cases


@pytest.mark.parametrize(("n", "epochs"), [(3, 1), (3, 2), (6, 1), (6, 2)])
def test_intervals_cover_what_they_claim(n: int, epochs: int) -> None:
    # 150 cases of a true 95 % fall below 92 % once in fifteen; the seed is fixed.
    assert _coverage(n, epochs) >= 0.92


def test_a_mean_ratio_has_student_s_interval() -> None:
    logs = [0.10, 0.14, 0.06, 0.12, 0.08]
    found = mean_ratio([math.exp(x) for x in logs])
    assert (found.n, math.log(found.point)) == (5, pytest.approx(0.10))
    # 2.7764 is the tables' quantile for 4 degrees of freedom, 0.0316 the deviation of these five.
    half = 2.7764 * math.sqrt(0.001) / math.sqrt(5)
    assert found.high is not None
    assert math.log(found.high) - 0.10 == pytest.approx(half, rel=1e-3)
    assert (mean_ratio([1.2]).low, mean_ratio([1.2]).high) == (None, None)


def test_an_interval_without_meaning_is_not_written_out() -> None:
    assert words.span(0.001, 500.0, words.seconds) == "unknown"
    assert words.span(0.5, 50.0, words.seconds) == "0.500–50.0"
    assert [words.points(value) for value in (-0.04, 0.04, -0.05001, 1.2)] == ["0.0", "0.0", "−0.1", "+1.2"]


def test_a_share_of_the_ceiling_that_rounds_to_none_is_not_none():
    assert [words.of_ceiling(value) for value in (None, 0.0, 0.0004, 0.0099, 0.014, 1.2)] == [
        words.NONE,
        "0 %",
        "< 1 %",
        "< 1 %",
        "1 %",
        "120 %",
    ]
