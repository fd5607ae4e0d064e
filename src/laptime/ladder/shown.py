"""What the rungs of a ladder have shown by themselves, which no rule then proposes against it."""

from __future__ import annotations

from laptime.catalogue import class_of, rung_spec
from laptime.compare import words
from laptime.compare.headlines import quality_phrase
from laptime.compare.model import Comparison, VariantRow
from laptime.records import ProbeRecord


def with_shown(probe: ProbeRecord, comparison: Comparison, variant: str) -> ProbeRecord:
    """A probe that also refuses what a ladder's rungs speak against, for advice on one of its variants.

    Refused are what changes what is learnt, where the rung that adds it was worse, and what made this very variant
    slower, interval and all: beside other optimizations, and at another batch, it may well be faster.

    Args:
        probe: the ladder's.
        comparison: of the same ladder.
        variant: that is advised on.
    """
    base, quality = comparison.row(comparison.baseline), comparison.conditions.quality
    found = dict[str, str]()
    for row in comparison.rows:
        if base is None or not row.adds or "+" in row.adds:
            continue
        added = rung_spec(row.adds)
        if row.verdict == "worse" and class_of(added) in ("statistical", "model"):
            phrase = quality_phrase(base, row, quality)
            found[added.name] = (
                f"{row.variant} has shown what {added.name} costs here: {phrase}; laptime tune tries more"
            )
        elif row.on == variant and _slower(row):
            found[added.name] = (
                f"{row.variant} has shown what {added.name} brings here: {words.bare_ratio(row.contribution)}x "
                f"({words.contribution_span(row)}) of {variant}'s speed"
            )
    return probe.model_copy(update={"refusals": {**probe.refusals, **found}})


def _slower(row: VariantRow) -> bool:
    return row.contribution_high is not None and row.contribution_high < 1
