"""Figures in sentences."""

from __future__ import annotations


def percent(share: float, digits: int = 0) -> str:
    """A share as `12 %`."""
    return f"{100 * share:.{digits}f} %"


def ms(value: float) -> str:
    """Milliseconds with one digit behind the point, below a half with two that mean something: 28.4, 0.31, 0.013."""
    return f"{value:.1f}" if value >= 0.5 or value < 0.0005 else f"{value:.2g}"
