"""What some pairs of processes say of a change: adopt it, give it up, or run another pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from laptime.compare.statistics import mean_ratio

# With a scatter of 4 % between pairs an interval of about 5 %: what that does not show is not looked for.
MOST = 5
# Two that happen to agree say nothing: of them one in 40 would pass for faster by chance, whatever they measured.
LEAST = 3
# What seems to cost more than this in a first pair gets no other; pairs wander by a few percent.
GIVEN_UP = 1.02
# What seems to bring as much as this in a first pair gets its others before anything else has a first.
CLEAR = 0.9
# After three a change that seems to bring less than this would not be shown by five.
_TOO_LITTLE = 0.99

Verdict = Literal["faster", "not faster", "not shown"]


def verdict(ratios: Sequence[float]) -> Verdict | None:
    """What ratios (seconds with the change over those without) say; None where another pair is to be run.

    Whoever looks after each pair is misled more often than an interval of 95 % says; so what a search has found is
    measured again by pairs that decide nothing.
    """
    found = mean_ratio(ratios)
    if found.n >= LEAST and found.high is not None and found.high < 1:
        return "faster"
    if found.point > (GIVEN_UP if found.n == 1 else 1.0):
        return "not faster"
    if found.n >= MOST or (found.n >= LEAST and found.point > _TOO_LITTLE):
        return "not shown"
    return None
