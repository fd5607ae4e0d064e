"""Predicted and measured gains in words."""

from __future__ import annotations

from laptime.records import Finding


def expected_gain(finding: Finding) -> str:
    """`12 to 18 %`, of the step."""
    low, high = (_percent(share) for share in finding.gain)
    return f"{low} %" if low == high else f"{low} to {high} %"


def measured_gain(finding: Finding) -> str:
    """`15 % (11 to 19 %, n = 3), quality kept`; why there is none; empty where nothing was run."""
    found = finding.measured
    if found is None:
        return ""
    if found.gain is None:
        return f"not measured: {found.error}"
    sure = f"n = {found.n}"
    if found.gain_low is not None and found.gain_high is not None:
        sure = f"{_percent(found.gain_low)} to {_percent(found.gain_high)} %, {sure}"
    quality = {None: "", True: ", quality kept", False: ", quality lost"}[found.quality_kept]
    return f"{_percent(found.gain)} % ({sure}){quality}"


def _percent(share: float) -> str:
    # A minus of its own width, and none before a zero.
    return f"{round(share * 100)}".replace("-", "−")
