"""Times as users write them."""

from __future__ import annotations

import math
import re

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def duration_s(text: str) -> float:
    """Reads `90`, `90s`, `15m` or `1.5h` as seconds; raises ValueError, in words that follow the text."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text.strip())
    if not found or not 0 < float(found[1]) < math.inf:
        raise ValueError("is no duration above 0: give 15m, 900s or 1h")
    return float(found[1]) * _UNITS[found[2]]


def in_time(seconds: float) -> str:
    """Seconds as a reader takes them: `5 s`, `15 minutes`, `2.5 hours`."""
    value, unit = (seconds, "s") if seconds < 100 else (seconds / 60, "minutes")
    value, unit = (value, unit) if seconds < 7200 else (seconds / 3600, "hours")
    return f"{f'{value:.1f}'.removesuffix('.0')} {unit}"
