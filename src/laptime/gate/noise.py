"""The noise of a pair: known from earlier pairs, and how many pairs it will take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from laptime.gate.decision import robust
from laptime.gate.policy import Policy

FEWEST = 20
OLDEST_S = 60 * 86400.0


def known_noise(log_ratios: Sequence[float]) -> float | None:
    """The standard deviation s0 of earlier pairs of two equal or nearly equal sides, None below twenty of them.

    By the median absolute deviation, so that a few spikes don't make a gate blind.
    """
    if len(log_ratios) < FEWEST:
        return None
    _, sd = robust(log_ratios)
    return sd if sd > 0 else None


def pairs_needed(sd: float, policy: Policy) -> tuple[int, int]:
    """How many pairs a gate takes at a noise, from and to: 2 to 4 times those of one look that spends all at once.

    One look needs ((z_alpha + z_beta) sd / limit)^2 pairs; looking several times, and a variance that is estimated,
    cost the factor.
    """
    normal = NormalDist()
    both = normal.inv_cdf(1 - policy.alpha) + normal.inv_cdf(1 - policy.beta)
    at_once = (both * sd / policy.limit) ** 2
    low, high = (max(policy.looks[0], 2 * math.ceil(factor * at_once / 2)) for factor in (2, 4))
    return low, high
