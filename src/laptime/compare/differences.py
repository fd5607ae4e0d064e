"""By how much the final quality of one variant's processes differs from that of another's, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from laptime.compare.statistics import CONFIDENCE, student

# What two trainings of other seeds differ by in the loss, percent: as the binomial error, an interval's least width.
LOSS_NOISE = 1.0
NOTHING = 1e-12
# Losses of one training that was done twice, in other orders of the same sums.
_ALIKE = 1e-5


@dataclass(frozen=True)
class Scores:
    """Final quality of each process of a variant, with its round: from 0 to 1, or a loss, of which less is better.

    Attributes:
        paths: of each process the losses of training and test, epoch by epoch; empty where some are not known.
    """

    rounds: tuple[int, ...]
    values: tuple[float, ...]
    is_loss: bool = False
    paths: tuple[tuple[float, ...], ...] = ()

    @property
    def mean(self) -> float:
        return fmean(self.values)


@dataclass(frozen=True)
class Sides:
    """What is compared of two variants: the values of their common rounds, else all of both."""

    baseline: Scores
    contender: Scores

    @property
    def rounds(self) -> list[int]:
        """Those that both have; none where a round occurs twice on a side."""
        unique = all(len(set(s.rounds)) == len(s.rounds) for s in (self.baseline, self.contender))
        return sorted(set(self.baseline.rounds) & set(self.contender.rounds)) if unique else []

    @property
    def values(self) -> tuple[list[float], list[float]]:
        """Of both sides, round by round where there are common ones."""
        if not self.rounds:
            return list(self.baseline.values), list(self.contender.values)
        p, q = (dict(zip(s.rounds, s.values, strict=True)) for s in (self.baseline, self.contender))
        return [p[r] for r in self.rounds], [q[r] for r in self.rounds]

    @property
    def trained_apart(self) -> int:
        """Rounds in which the sides are two trainings, which may differ by chance; all where losses are unknown.

        Where both went through the same losses in all epochs, as rounding alone leaves them, one was done twice.
        """
        n = min(map(len, self.values))
        if not (self.rounds and self.baseline.paths and self.contender.paths):
            return n
        p, q = (dict(zip(s.rounds, s.paths, strict=True)) for s in (self.baseline, self.contender))
        return sum(len(p[r]) != len(q[r]) or not all(map(_alike, p[r], q[r])) for r in self.rounds)


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ALIKE)


def difference(baseline: Scores, contender: Scores, test_count: int) -> tuple[float, float | None]:
    """Contender less baseline, in percentage points, and half the width of its interval.

    Over n common rounds the difference is the mean of the rounds' differences, and its interval the wider of
    two: Student's, see `_scatter`, and that of the binomial error, sqrt((p(1 - p) + q(1 - q)) / (N n)) for N
    test samples. The trainings' scatter already holds the binomial error (undecided samples fall anew in each
    training; what the choice of samples adds cancels, for all variants are scored on the same ones), so the
    two are not added: the binomial one is a floor for trainings that happen to agree. With one round it is the
    only one. Without common rounds both samples count by themselves. Of a loss all of it is in percent of the
    baseline's mean, less is more, and the floor is what two seeds differ by. A round in which one training was done
    twice adds rounding to the mean, and nothing to the floor; where all are, the interval is no wider than that.
    """
    sides = Sides(baseline, contender)
    p, q = _gains(baseline, *sides.values)
    n, apart = min(len(p), len(q)), sides.trained_apart
    diff = (fmean(q) - fmean(p)) * 100
    if test_count < 1:
        return diff, None
    if not apart:
        return diff, abs(diff)
    if baseline.is_loss:
        floor = LOSS_NOISE / 100 * math.sqrt(apart) / n
    else:
        binomial = math.sqrt((spread(fmean(p)) + spread(fmean(q))) * apart / test_count) / n
        floor = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * binomial
    return diff, max(floor, _scatter(p, q, bool(sides.rounds))) * 100


def possible(baseline: Scores, contender: Scores, begun: float, ends: tuple[float, float]) -> tuple[float, float]:
    """An interval of a difference of shares, in points, without what no share beside the baseline's mean comes to.

    A score below 0, on whichever side or before the training (`begun`), is no share but an R2, say: it has no least.
    """
    if baseline.is_loss:
        return ends
    known, mean = (*baseline.values, *contender.values, begun), fmean(Sides(baseline, contender).values[0])
    least, most = 0.0 if min(known) >= 0 else -math.inf, 1.0 if max(known) <= 1 else math.inf
    return max(ends[0], 100 * (least - mean)), min(ends[1], 100 * (most - mean))


def _scatter(p: list[float], q: list[float], common: bool) -> float:
    """Half the width of Student's interval for the difference of two means; 0 where a side has one value.

    The narrower of two where rounds are common: over the rounds' differences, which is the better one where both sides
    of a round rise and fall together, and over each side by itself, which has twice the degrees of freedom. By the
    first alone two rounds seldom tell twelve points from none (docs/log.md has what both cover).
    """
    n = min(len(p), len(q))
    if n < 2:
        return 0.0
    found = [_half(variance(p) / len(p) + variance(q) / len(q), 2 * (n - 1))]
    if common:
        found.append(_half(variance([b - a for a, b in zip(p, q, strict=True)]) / n, n - 1))
    return min(found)


def _half(error: float, degrees: int) -> float:
    """Half the width of Student's interval, of the square of a standard error and its degrees of freedom."""
    return student(0.5 + CONFIDENCE / 2, degrees) * math.sqrt(error)


def _gains(baseline: Scores, p: list[float], q: list[float]) -> tuple[list[float], list[float]]:
    """Values of both sides of which more is better; losses as shares of the baseline's mean, with the other sign."""
    if not baseline.is_loss:
        return p, q
    scale = max(abs(fmean(p)), NOTHING)
    return [-v / scale for v in p], [-v / scale for v in q]


def spread(p: float) -> float:
    """p(1 - p), with 0 and 1 moved in by one in a thousand: a perfect score on few samples is not certain."""
    inside = min(max(p, 0.001), 0.999)
    return inside * (1 - inside)
