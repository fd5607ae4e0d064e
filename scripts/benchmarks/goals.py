"""What laptime takes over the other sides, in pairs by turns, beside what was promised (`peers`, `steps`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laptime.compare.statistics import Estimate

PLAIN, LAPTIME = "plain script", "laptime"
SIDES = (PLAIN, LAPTIME, "Lightning", "Accelerate")


@dataclass(frozen=True)
class Goal:
    """What laptime's time over another side's is to be.

    Attributes:
        most: the bound of the ratio.
        below: whether the bound itself is too much.
    """

    words: str
    most: float
    below: bool = False

    def broken(self, found: Estimate) -> bool:
        """Whether all of the interval is past the bound; one turn has no interval and breaks nothing."""
        return found.low is not None and (found.low > self.most or (self.below and found.low == self.most))

    def verdict(self, found: Estimate) -> str:
        """Held, missed, or left open by the interval."""
        if found.low is None or found.high is None:
            return "one round shows nothing"
        if self.broken(found):
            return "missed"
        if found.high < self.most or (found.high == self.most and not self.below):
            return "held"
        return f"open, {'likely' if found.point <= self.most else 'unlikely'}: the interval holds both"


GOALS = {
    PLAIN: Goal("at most 1.01", 1.01),
    "Lightning": Goal("below 1", 1.0, below=True),
    "Accelerate": Goal("at most 1", 1.0),
}


def goal_lines(found: Mapping[str, Estimate]) -> list[str]:
    """A table of laptime's time over each other side's, by side."""
    lines = ["| laptime over | ratio in pairs by turns | goal | verdict |", "|---|---:|---|---|"]
    for side, goal in GOALS.items():
        lines.append(f"| {side} | {shown(found[side])} | {goal.words} | {goal.verdict(found[side])} |")
    return lines


def missed(found: Mapping[str, Estimate]) -> list[str]:
    """A sentence for each goal that the intervals say is missed."""
    return [
        f"laptime takes {shown(found[side])} of {side}'s time, and the goal is {goal.words}."
        for side, goal in GOALS.items()
        if goal.broken(found[side])
    ]


def shown(found: Estimate) -> str:
    """A ratio with its interval."""
    if found.low is None or found.high is None:
        return f"{found.point:.4f}"
    return f"{found.point:.4f} ({found.low:.4f} to {found.high:.4f})"
