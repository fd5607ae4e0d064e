"""Whether a change keeps what is learnt: one whole training beside the baseline's."""

from __future__ import annotations

from collections.abc import Generator

from laptime.catalogue import class_of
from laptime.compare.quality import LOWER_IS_BETTER, Scores, final_quality, has_learnt, judge, name_of, rules_of, shown
from laptime.ladder.climb import fastest_s
from laptime.ladder.run import Ladder
from laptime.ladder.turn import Turn
from laptime.records import Outcome, RunRecord
from laptime.variants import Variant, without


def can_judge(ladder: Ladder) -> bool:
    """Whether the baseline, a ladder's first process, has learnt enough to lose something, of real data."""
    record = ladder.record
    return has_learnt(final_quality(ladder.runs[0], record.quality), record.quality, rules_of(record))


def is_good(ladder: Ladder, record: RunRecord) -> bool:
    """Whether a whole training is faster than the baseline's, and not worse."""
    seconds, base = fastest_s(record), fastest_s(ladder.runs[0])
    return seconds is not None and base is not None and seconds < base and not _is_worse(ladder, record)


def learning_alike(whole: Variant) -> Variant:
    """A variant less all that changes what is learnt; itself where nothing does."""
    for part in whole.optimizations:
        if class_of(part) not in ("exact", "numeric"):
            whole = without(whole, part.name)
    return whole


def trained(ladder: Ladder, candidate: Variant) -> Generator[Turn, None, tuple[Outcome, str]]:
    """One whole training of what is faster: whether it is not worse either, and what it came to."""
    yield ladder.verify(candidate, None, 1)
    record, quality = ladder.verified[-1], ladder.record.quality
    reached, base = (final_quality(r, quality) for r in (record, ladder.runs[0]))
    if reached is None or base is None:
        return "failed", f"its whole training {record.status}: {record.error}"
    said = f"{name_of(quality)} {shown(reached, quality)}, baseline {shown(base, quality)}"
    return ("worse" if _is_worse(ladder, record) else "faster"), said


def _is_worse(ladder: Ladder, record: RunRecord) -> bool:
    quality = ladder.record.quality
    base, found = (final_quality(r, quality) for r in (ladder.runs[0], record))
    if base is None or found is None:
        return False
    is_loss = quality in LOWER_IS_BETTER
    before, after = (Scores((0,), (value,), is_loss) for value in (base, found))
    return judge(before, after, rules_of(ladder.record)).verdict == "worse"
