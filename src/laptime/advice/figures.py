"""Figures in sentences."""

from __future__ import annotations


def percent(share: float, digits: int = 0) -> str:
    """A share as `12 %`."""
    return f"{100 * share:.{digits}f} %"
