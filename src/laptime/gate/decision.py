"""The decision: log ratios of pairs in, a verdict with every figure out. Pure, and looked at only at planned counts.

A pair's log ratio is log(head's epoch) - log(base's epoch), so it is above 0 where head is slower. The rule is that of
docs/gate.md: a group-sequential t-test with known noise as a prior of four degrees of freedom, outliers drawn in, and
error rates spent in proportion to the count of pairs (Bonferroni over the looks: it holds however they depend).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from laptime.errors import UsageError
from laptime.gate.policy import Policy
from laptime.gate.student import quantile

Kind = Literal["regressed", "improved", "not_regressed", "inconclusive"]

# The median absolute deviation of a normal distribution times this is its standard deviation.
_MAD_TO_SD = 1.4826
DEFAULT = Policy()
_PRIOR = 4
_CLIP = 2.0
_FARTHEST = 2000


@dataclass(frozen=True)
class Spread:
    """What so many pairs say: mean and variance of the log ratio, and the degrees of freedom behind the variance."""

    n: int
    mean: float
    variance: float
    degrees: int

    def reach(self, tail: float) -> float:
        """Half width of the bound that is missed with probability `tail`."""
        return quantile(tail, self.degrees) * math.sqrt(self.variance / self.n)


@dataclass(frozen=True)
class Look:
    """One look, or the state between two.

    Attributes:
        n: pairs looked at.
        ratio: head's time over base's.
        low, high: bounds of the ratio, each missed with probability `alpha`.
        pass_bound: upper bound of the ratio, missed with probability `beta`; below the limit it is a pass.
        mean, sd, degrees: of the log ratio of one pair, as the rule takes them.
        alpha, beta: what this look spends.
    """

    n: int
    kind: Kind
    ratio: float
    low: float
    high: float
    pass_bound: float
    mean: float
    sd: float
    degrees: int
    alpha: float
    beta: float


@dataclass(frozen=True)
class Verdict:
    """What the pairs show, with every figure.

    Attributes:
        kind: the verdict; `inconclusive` where no look had another one.
        pairs: pairs given; those after the deciding look don't count.
        noise: the known noise s0 that was used, None where there was none.
        looks: all looks up to the deciding one.
        state: the deciding look; without a verdict the estimate from all pairs, None below two.
        alpha_spent, beta_spent: by all looks so far.
        next_look: the next planned count, None where decided or at the end of the plan.
        expected: pairs still expected until a verdict if mean and noise stay as they are, also beyond the plan.
    """

    kind: Kind
    pairs: int
    noise: float | None
    looks: tuple[Look, ...]
    state: Look | None
    alpha_spent: float
    beta_spent: float
    next_look: int | None
    expected: int | None

    @property
    def decided(self) -> bool:
        return self.kind != "inconclusive"


def decide(log_ratios: Sequence[float], noise: float | None = None, policy: Policy = DEFAULT) -> Verdict:
    """Decides from the log ratios of all pairs so far, in their order.

    Args:
        log_ratios: log(head) - log(base) of each pair.
        noise: known standard deviation of a log ratio on this machine (s0), None where unknown.
        policy: limit, error rates and looks.

    Raises:
        UsageError: a log ratio or the noise is not a finite number, or the noise is not above 0.
    """
    values = [float(d) for d in log_ratios]
    _check(values, noise)
    looks: list[Look] = []
    for n in policy.looks:
        if n > len(values):
            break
        looks.append(look_at(spread_of(values[:n], noise), policy, policy.share(n)))
        if looks[-1].kind != "inconclusive":
            break
    decided = bool(looks) and looks[-1].kind != "inconclusive"
    later = [n for n in policy.looks if n > len(values)]
    state = looks[-1] if decided else _estimate(values, noise, policy)
    return Verdict(
        kind=looks[-1].kind if looks else "inconclusive",
        pairs=len(values),
        noise=noise,
        looks=tuple(looks),
        state=state,
        alpha_spent=sum(look.alpha for look in looks),
        beta_spent=sum(look.beta for look in looks),
        next_look=None if decided or not later else later[0],
        expected=0 if decided else _expected(state, noise, policy),
    )


def robust(values: Sequence[float]) -> tuple[float, float]:
    """Centre and standard deviation that a few spikes do not move: by the median, and the median distance from it."""
    centre = median(values)
    return centre, _MAD_TO_SD * median([abs(value - centre) for value in values])


def spread_of(values: Sequence[float], noise: float | None) -> Spread:
    """Mean and variance by the rule; outliers are drawn in only where the noise is known. Needs two values."""
    n = len(values)
    if noise is not None:
        centre, sd = robust(values)
        width = _CLIP * max(sd, noise)
        values = [min(max(d, centre - width), centre + width) for d in values]
    mean = fmean(values)
    own = math.fsum((d - mean) ** 2 for d in values) / (n - 1)
    if noise is None:
        return Spread(n, mean, own, n - 1)
    return Spread(n, mean, _with_prior(own, n, noise), n - 1 + _PRIOR)


def _with_prior(own: float, n: int, noise: float) -> float:
    """Known noise counts like four more degrees of freedom, and never makes the variance smaller than what is seen."""
    return max(own, (_PRIOR * noise**2 + (n - 1) * own) / (n - 1 + _PRIOR))


def look_at(spread: Spread, policy: Policy, share: float) -> Look:
    """What one look says; the same figures with head and base exchanged say the mirror image of `regressed`."""
    alpha, beta = policy.alpha * share, policy.beta * share
    reach, passing = spread.reach(alpha), spread.mean + spread.reach(beta)
    low, high = spread.mean - reach, spread.mean + reach
    kind: Kind = "inconclusive"
    if low > 0 and spread.mean >= policy.least:
        kind = "regressed"
    elif high < 0 and spread.mean <= -policy.least:
        kind = "improved"
    elif passing < policy.limit:
        kind = "not_regressed"
    return Look(
        n=spread.n,
        kind=kind,
        ratio=_ratio(spread.mean),
        low=_ratio(low),
        high=_ratio(high),
        pass_bound=_ratio(passing),
        mean=spread.mean,
        sd=math.sqrt(spread.variance),
        degrees=spread.degrees,
        alpha=alpha,
        beta=beta,
    )


def _ratio(logarithm: float) -> float:
    """The ratio; a bound beyond all measure, as two pairs may give, stays a number."""
    return math.exp(min(max(logarithm, -50.0), 50.0))


def _estimate(values: Sequence[float], noise: float | None, policy: Policy) -> Look | None:
    """Where things stand between looks: shown, never decided on, so it spends nothing."""
    if len(values) < 2:
        return None
    nearest = next((n for n in policy.looks if n >= len(values)), policy.looks[-1])
    return look_at(spread_of(values, noise), policy, policy.share(nearest))


def _expected(state: Look | None, noise: float | None, policy: Policy) -> int | None:
    """Pairs still needed until a look has a verdict, with mean and noise as they are now; None where unknown."""
    if state is None:
        return None
    prior, last = 0 if noise is None else _PRIOR, policy.looks[-1]

    def decides(n: int) -> bool:
        imagined = Spread(n, state.mean, state.sd * state.sd, n - 1 + prior)
        return look_at(imagined, policy, policy.share(min(n, last))).kind != "inconclusive"

    planned = [n for n in policy.looks if n > state.n]
    found = next((n for n in planned if decides(n)), None)
    if found is None:
        # Beyond the plan each look spends the same, so more pairs only narrow the bounds.
        further = range(last + 2, _FARTHEST, 2)
        further = further[bisect_right(further, state.n) :]
        place = bisect_left(further, True, key=decides)
        found = further[place] if place < len(further) else None
    return None if found is None else found - state.n


def _check(values: Sequence[float], noise: float | None) -> None:
    for place, value in enumerate(values, start=1):
        if not math.isfinite(value):
            raise UsageError(f"the log ratio of pair {place} is {value}: every pair needs two times above 0.")
    if noise is not None and not (math.isfinite(noise) and noise > 0):
        raise UsageError(f"the noise {noise} is not a number above 0: leave it out where it is not known.")
