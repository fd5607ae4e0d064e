"""What a gate shows of the gain that advice had expected of a change of code."""

from __future__ import annotations

import math
from statistics import median

from laptime.gate.checks import quality_kept
from laptime.gate.decision import spread_of
from laptime.gate.records import GateRecord
from laptime.records import Finding, Measured

# An interval of 95 %.
_TAIL = 0.025
_FEWEST = 2


def measured(record: GateRecord) -> Measured:
    """The share of base's epoch that head takes less, with its interval over pairs; without pairs why there is none."""
    pairs, outcome = record.counted, record.outcome
    if len(pairs) < _FEWEST or (outcome is not None and outcome.kind in ("invalid", "error")):
        return Measured(error=outcome.sentence if outcome else "the gate has not ended")
    spread = spread_of(record.log_ratios, record.noise)
    reach = spread.reach(_TAIL)
    kept, words = quality_kept(pairs)
    steps = [[p.step_ms for p in side if p.step_ms] for side in zip(*((q.base, q.head) for q in pairs), strict=True)]
    before, after = (median(side) if side else None for side in steps)
    return Measured(
        step_ms=after,
        step_ms_before=before,
        gain=1 - math.exp(spread.mean),
        gain_low=1 - math.exp(spread.mean + reach),
        gain_high=1 - math.exp(spread.mean - reach),
        n=len(pairs),
        quality_kept=kept,
        quality=words,
    )


def in_words(finding: Finding, found: Measured, advised: str) -> str:
    """Expected beside measured, in a sentence."""
    low, high = (f"{100 * share:.0f}" for share in finding.gain)
    said = f"Advice on {advised} expected {low} to {high} % less by {finding.id}"
    if found.gain is None or found.gain_low is None or found.gain_high is None:
        return f"{said}; nothing was measured: {found.error}"
    change = f"{100 * abs(found.gain):.0f} % {'less' if found.gain >= 0 else 'more'}"
    span = f"{100 * found.gain_low:.0f} to {100 * found.gain_high:.0f} % less, n = {found.n}"
    return f"{said}: the change took {change} ({span}); {found.quality or 'quality not judged'}."
