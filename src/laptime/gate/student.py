"""Student's quantile without scipy, whose import alone takes longer than a whole decision may."""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_MOST = 300


@lru_cache(maxsize=4096)
def quantile(tail: float, degrees: int) -> float:
    """The t with P(T > t) = `tail`, for 0 < tail < 0.5; bisection, good to twelve digits."""
    low, high = 0.0, 1.0
    while upper_tail(high, degrees) > tail:
        low, high = high, high * 2
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if upper_tail(middle, degrees) > tail else (low, middle)
    return (low + high) / 2


def upper_tail(t: float, degrees: int) -> float:
    """P(T > t) for t >= 0: half the regularized incomplete beta function I_x(degrees / 2, 1 / 2), x = d / (d + t^2)."""
    a, b, x = degrees / 2, 0.5, degrees / (degrees + t * t)
    y = t * t / (degrees + t * t)
    if t == 0:
        return 0.5
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a / 2
    return (1 - front * _fraction(b, a, y) / b) / 2


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function by Lentz's method (DLMF 8.17.22)."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + factor * d)
            c = _away(1 + factor / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
