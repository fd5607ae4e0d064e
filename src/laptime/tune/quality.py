"""Whether a change keeps what is learnt: whole trainings beside the baseline's, of more seeds where one can't tell."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from laptime.catalogue import class_of
from laptime.compare.quality import (
    MARGIN_POINTS,
    Judgement,
    final_quality,
    has_learnt,
    judge,
    name_of,
    rules_of,
    scores_of,
    shown,
)
from laptime.ladder.climb import fastest_s
from laptime.ladder.estimate import process_s
from laptime.ladder.run import Ladder
from laptime.ladder.turn import Turn
from laptime.records import Outcome, RunRecord
from laptime.tune.budget import Budget
from laptime.variants import Variant, without

# Trainings of each side. Where seeds scatter by 1.5 points, 2 of 40 changes that cost three points stayed with up to
# three of each, and 25 with one (docs/tune.md).
SEEDS = 3
# Where a search begins, more trainings may take this share of what is left: the rest is for changes. And the mean may
# be lower by this many points: the catalogue's list has kept what is learnt elsewhere, and without it much is lost.
_START_SHARE = 0.25
_START_MARGIN = 2 * MARGIN_POINTS


@dataclass(frozen=True)
class Found:
    """What whole trainings say of a list.

    Attributes:
        outcome: `faster` where quality is as good.
        said: what it came to, in words.
    """

    outcome: Outcome
    said: str


class Trainings:
    """Whole trainings of lists and of the baseline, whose first is the ladder's first process.

    What seems to learn less by one of each, and is unclear by the comparison's rule, gets another, of the same new seed
    on both sides, until the rule decides, the mean is not lower any more, there are three, or the budget has no time.
    What is unclear then stays where the mean is not lower by more than that rule's margin. The seeds are others than
    those of the ladder's later rounds, which are to judge what they have not chosen.

    Args:
        ladder: whose turns they are.
        base: the baseline.
        budget: of the search.
    """

    def __init__(self, ladder: Ladder, base: Variant, budget: Budget) -> None:
        self._ladder, self._base, self._budget = ladder, base, budget
        self._baselines: list[RunRecord] = []
        self._broken = False

    def of(self, candidate: Variant) -> Generator[Turn, None, Found]:
        """Trains what is faster, and says whether it is as good."""
        yield self._training(candidate, 0)
        return (yield from self._settled(candidate, self._ladder.verified[-1], 1.0, MARGIN_POINTS))

    def begins(self, variant: Variant, first: RunRecord) -> Generator[Turn, None, tuple[bool, str]]:
        """Whether a search may begin with what has had its first process, and why, in words.

        What learns alike is trained once, and only refused where that is shown to lose.
        """
        alike = learning_alike(variant).name == variant.name
        found = yield from self._settled(variant, first, 0.0 if alike else _START_SHARE, _START_MARGIN)
        good = found.outcome == "faster" or (found.outcome == "unclear" and alike)
        word = "kept" if found.outcome == "faster" else found.outcome
        return good, f"{variant.name} {word} ({found.said})" if found.said else ""

    def _settled(self, variant: Variant, first: RunRecord, share: float, margin: float) -> Generator[Turn, None, Found]:
        """Judges a whole training, after more of them where need be.

        Args:
            variant: the list.
            first: its training of the baseline's first seed.
            share: of what is left of the budget, that more of them may take at most.
            margin: points by which the mean may be lower where the rule does not decide.
        """
        mine = [first]
        until = self._budget.left_s() * (1 - share)
        while True:
            failed = self._failure(mine[-1])
            if failed:
                return Found("failed", failed)
            verdict = self._judged(mine)
            doubtful = verdict.verdict == "unclear" and (verdict.diff_points or 0.0) < 0
            if not doubtful or len(mine) >= SEEDS or self._budget.left_s() - self._takes_s(mine) < until:
                return self._told(verdict, len(mine), margin)
            if not (yield from self._has_baseline(len(mine))):
                return self._told(verdict, len(mine), margin)
            yield self._training(variant, len(mine))
            mine.append(self._ladder.verified[-1])

    def _has_baseline(self, number: int) -> Generator[Turn, None, bool]:
        """Trains the baseline of another seed where it has not been; whether it has a training of that seed now."""
        if len(self._baselines) < number and not self._broken:
            yield self._training(self._base, number)
            record = self._ladder.verified[-1]
            self._broken = bool(self._failure(record))
            self._baselines += [] if self._broken else [record]
        return len(self._baselines) >= number

    def _training(self, variant: Variant, number: int) -> Turn:
        repeat = self._ladder.preset.repeats + number - 1 if number else 0
        return replace(self._ladder.verify(variant, None, 1), repeat=repeat)

    def _beside(self, count: int) -> list[RunRecord]:
        return [self._ladder.runs[0], *self._baselines][:count]

    def _takes_s(self, mine: list[RunRecord]) -> float:
        """Seconds that one more training takes, and the baseline's beside it where that has not run."""
        new = () if len(self._baselines) >= len(mine) else (self._ladder.runs[0],)
        return sum(process_s(record, self._ladder.preset.epochs) for record in (mine[0], *new))

    def _failure(self, record: RunRecord) -> str:
        """Why a training has no quality where the baseline has one; empty where it has."""
        quality = self._ladder.record.quality
        if record.status != "done":
            return f"its whole training {record.status}: {record.error}"
        if final_quality(record, quality) is None and final_quality(self._ladder.runs[0], quality) is not None:
            return f"its whole training left no {name_of(quality)}"
        return ""

    def _judged(self, mine: list[RunRecord]) -> Judgement:
        quality = self._ladder.record.quality
        before, after = scores_of(self._beside(len(mine)), quality), scores_of(mine, quality)
        return judge(before, after, rules_of(self._ladder.record))

    def _told(self, found: Judgement, seeds: int, margin: float) -> Found:
        quality, beside = self._ladder.record.quality, scores_of(self._beside(seeds), self._ladder.record.quality)
        if found.value is None or found.diff_points is None or beside is None or found.verdict == "not judged":
            return Found("faster", "")
        said = f"{name_of(quality)} {shown(found.value, quality)}, baseline {shown(beside.mean, quality)}"
        said += f", {seeds} seeds each" if seeds > 1 else ""
        if found.verdict == "worse":
            return Found("worse", said)
        if found.verdict != "unclear":
            return Found("faster", said)
        if found.diff_points >= -margin:
            return Found("faster", f"{said}, unclear")
        return Found("unclear", said)


def can_judge(ladder: Ladder) -> bool:
    """Whether the baseline, a ladder's first process, has learnt enough to lose something, of real data."""
    record = ladder.record
    return has_learnt(final_quality(ladder.runs[0], record.quality), record.quality, rules_of(record))


def is_faster(ladder: Ladder, record: RunRecord) -> bool:
    """Whether a whole training is faster than the baseline's."""
    seconds, base = fastest_s(record), fastest_s(ladder.runs[0])
    return seconds is not None and base is not None and seconds < base


def learning_alike(whole: Variant) -> Variant:
    """A variant less all that changes what is learnt; itself where nothing does."""
    for part in whole.optimizations:
        if class_of(part) not in ("exact", "numeric"):
            whole = without(whole, part.name)
    return whole
