"""Whether a change of a search keeps what is learnt: whole trainings beside the baseline's, within the budget."""

from __future__ import annotations

from collections.abc import Generator

from laptime.catalogue import class_of
from laptime.compare.quality import final_quality, has_learnt, rules_of
from laptime.ladder.climb import fastest_s
from laptime.ladder.estimate import process_s
from laptime.ladder.run import Ladder
from laptime.ladder.seeds import Found, Room, Trainings
from laptime.ladder.turn import Turn
from laptime.records import RunRecord
from laptime.tune.budget import Budget
from laptime.variants import Variant, without

# Where a search begins, more trainings may take this share of what is left: the rest is for changes. And the mean may
# be lower by this many of the rule's margins: the catalogue's list has kept what is learnt elsewhere, and without it
# much is lost.
_START_SHARE = 0.25
_START_MARGIN = 2


class Budgeted:
    """Whole trainings of a search's lists, as far as its budget has room; any lower mean is a reason for more.

    Args:
        ladder: whose turns they are.
        base: the baseline.
        budget: of the search.
    """

    def __init__(self, ladder: Ladder, base: Variant, budget: Budget) -> None:
        self._ladder, self._budget = ladder, budget
        self._trainings = Trainings(ladder, base)

    def of(self, candidate: Variant) -> Generator[Turn, None, Found]:
        """Trains what is faster, and says whether it is as good."""
        yield self._trainings.one(candidate)
        first, room = self._ladder.verified[-1], self._room(1.0)
        return (yield from self._trainings.settled(candidate, first, 0, 1, room))

    def begins(self, variant: Variant, first: RunRecord) -> Generator[Turn, None, tuple[bool, str]]:
        """Whether a search may begin with what has had its first process, and why, in words.

        What learns alike is trained once, and only refused where that is shown to lose.
        """
        alike = learning_alike(variant).name == variant.name
        room = self._room(0.0 if alike else _START_SHARE)
        found = yield from self._trainings.settled(variant, first, 0, _START_MARGIN, room)
        good = found.outcome == "faster" or (found.outcome == "unclear" and alike)
        word = "kept" if found.outcome == "faster" else found.outcome
        return good, f"{variant.name} {word} ({found.said})" if found.said else _unjudged(variant)

    def _room(self, share: float) -> Room:
        """Whether more trainings fit into a share of what is left of the budget now."""
        until = self._budget.left_s() * (1 - share)
        return lambda mine: self._budget.left_s() - self._takes_s(mine) >= until

    def _takes_s(self, mine: list[RunRecord]) -> float:
        """Seconds that one more training takes, and the baseline's beside it where that has not run."""
        new = (self._ladder.runs[0],) if self._trainings.untrained(len(mine)) else ()
        return sum(process_s(record, self._ladder.preset.epochs) for record in (mine[0], *new))


def can_judge(ladder: Ladder) -> bool:
    """Whether the baseline, a ladder's first process, has learnt enough to lose something, of real data."""
    record = ladder.record
    return has_learnt(final_quality(ladder.runs[0], record.quality), record.quality, rules_of(record, ladder.runs))


def is_faster(ladder: Ladder, record: RunRecord) -> bool:
    """Whether a whole training is faster than the baseline's."""
    seconds, base = fastest_s(record), fastest_s(ladder.runs[0])
    return seconds is not None and base is not None and seconds < base


def _unjudged(variant: Variant) -> str:
    """What nobody has judged of a list that a search begins with all the same; empty where it learns alike."""
    alike = {o.name for o in learning_alike(variant).optimizations}
    parts = [o.name for o in variant.optimizations if o.name not in alike]
    return f"{variant.name} not judged, though {' and '.join(parts)} in it may change what is learnt" if parts else ""


def learning_alike(whole: Variant) -> Variant:
    """A variant less all that changes what is learnt; itself where nothing does."""
    for part in whole.optimizations:
        if class_of(part) not in ("exact", "numeric"):
            whole = without(whole, part.name)
    return whole
