"""What a gate promises: the limit, the error rates, and the counts of pairs at which it looks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from laptime.errors import UsageError

LOOKS = (4, 8, 10, 12, 16, 20, 24)
FEWEST = LOOKS[0]
_STEP = 4


@dataclass(frozen=True)
class Policy:
    """The rule before any pair is seen.

    Attributes:
        max_slowdown: the slowdown that must not pass, as a share: 0.1 is 10 %.
        alpha: P(regressed | no change) at most, over all looks together.
        beta: P(not_regressed | slower by `max_slowdown`) at most.
        looks: counts of pairs at which a verdict may fall, even and rising.
    """

    max_slowdown: float = 0.10
    alpha: float = 0.01
    beta: float = 0.05
    looks: tuple[int, ...] = LOOKS

    def __post_init__(self) -> None:
        """Refuses what promises nothing; raises UsageError."""
        if not 0 < self.max_slowdown <= 1:
            raise UsageError(
                f"--max-slowdown of {self.max_slowdown:.1%} must lie between 0 and 100 %: write 10% or 0.1, say, "
                "since a number without a percent sign is a share."
            )
        if not (0 < self.alpha < 0.5 and 0 < self.beta < 0.5):
            raise UsageError(f"alpha {self.alpha:g} and beta {self.beta:g} must lie between 0 and 0.5.")
        rising = all(a < b for a, b in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or not rising or self.looks[0] < 2 or any(n % 2 for n in self.looks):
            raise UsageError(f"looks {self.looks} must be even counts from 2, rising: orders AB and BA come in twos.")

    @property
    def limit(self) -> float:
        """Logarithm of the slowdown that must not pass."""
        return math.log1p(self.max_slowdown)

    @property
    def least(self) -> float:
        """Logarithm of the least slowdown that is called one: half the limit."""
        return math.log1p(self.max_slowdown / 2)

    def share(self, pairs: int) -> float:
        """The part of the error rates that a look at so many pairs may spend."""
        return pairs / sum(self.looks)


def make_policy(max_slowdown: float, max_pairs: int) -> Policy:
    """The policy for a limit and a count of pairs.

    Raises:
        UsageError: fewer than four pairs, or a limit that makes no sense.
    """
    if max_pairs < FEWEST:
        raise UsageError(
            f"--max-pairs {max_pairs} allows no verdict: {FEWEST} pairs are the fewest, so give 4 or more."
        )
    most = max_pairs - max_pairs % 2
    further = range(LOOKS[-1] + _STEP, most + 1, _STEP)
    looks = [n for n in (*LOOKS, *further) if n <= most]
    return Policy(max_slowdown, looks=tuple(looks if looks[-1] == most else [*looks, most]))
