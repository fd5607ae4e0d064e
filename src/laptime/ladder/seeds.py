"""Whether what changes the trajectory keeps quality: whole trainings, of more seeds where one of each can't tell."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laptime.compare.quality import (
    Judgement,
    final_quality,
    judge,
    margin_points,
    name_of,
    rules_of,
    scores_of,
    shown,
)
from laptime.records import Outcome, RunRecord
from laptime.variants import Variant

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn

# Trainings of each side. Where seeds scatter by 1.5 points, 2 of 40 changes that cost three points stayed with up to
# three of each, and 25 with one (docs/tune.md).
SEEDS = 3

# Whether there is room for one more training of a side that has so many.
Room = Callable[[list[RunRecord]], bool]


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
    on both sides, until the rule decides, the mean is not lower any more, there are three, or there is no room.
    What is unclear then stays where the mean is not lower by more than that rule's margin. The seeds are others than
    those of the ladder's later rounds, which are to judge what they have not chosen.

    Args:
        ladder: whose turns they are.
        base: the baseline.
    """

    def __init__(self, ladder: Ladder, base: Variant) -> None:
        self._ladder, self._base = ladder, base
        self._baselines: list[RunRecord] = []
        self._broken = False

    def one(self, variant: Variant, number: int = 0) -> Turn:
        """A whole training of a variant, of the baseline's first seed or another one's number."""
        repeat = self._ladder.preset.repeats + number - 1 if number else 0
        return replace(self._ladder.trial(variant), kind="training", repeat=repeat)

    def settled(
        self, variant: Variant, first: RunRecord, doubt: int, margin: int, room: Room = lambda _: True
    ) -> Generator[Turn, None, Found]:
        """Judges a whole training, after more of them where need be.

        Args:
            variant: the list.
            first: its training of the baseline's first seed.
            doubt: of the rule's margins, by which the mean must be lower for more trainings.
            margin: of the rule's margins, by which the mean may be lower where the rule does not decide.
            room: whether there is room for more.
        """
        mine = [first]
        while True:
            failed = self._failure(mine[-1])
            if failed:
                return Found("failed", failed)
            verdict = self._judged(mine)
            doubtful = verdict.verdict == "unclear" and (verdict.diff_points or 0.0) < -doubt * self._margin(len(mine))
            if not doubtful or len(mine) >= SEEDS or not room(mine):
                return self._told(verdict, len(mine), margin)
            if not (yield from self._has_baseline(len(mine))):
                return self._told(verdict, len(mine), margin)
            yield self.one(variant, len(mine))
            mine.append(self._ladder.verified[-1])

    def untrained(self, count: int) -> bool:
        """Whether the baseline lacks the training of another seed beside so many of a variant's."""
        return len(self._baselines) < count

    def _has_baseline(self, number: int) -> Generator[Turn, None, bool]:
        """Trains the baseline of another seed where it has not been; whether it has a training of that seed now."""
        if self.untrained(number) and not self._broken:
            yield self.one(self._base, number)
            record = self._ladder.verified[-1]
            self._broken = bool(self._failure(record))
            self._baselines += [] if self._broken else [record]
        return not self.untrained(number)

    def _beside(self, count: int) -> list[RunRecord]:
        return [self._ladder.runs[0], *self._baselines][:count]

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
        return judge(before, after, rules_of(self._ladder.record, self._ladder.runs))

    def _margin(self, seeds: int) -> float:
        """Points that count as no loss beside the baseline's trainings."""
        before = scores_of(self._beside(seeds), self._ladder.record.quality)
        return 0.0 if before is None else margin_points(before, rules_of(self._ladder.record, self._ladder.runs))

    def _told(self, found: Judgement, seeds: int, margin: int) -> Found:
        quality, beside = self._ladder.record.quality, scores_of(self._beside(seeds), self._ladder.record.quality)
        if found.value is None or found.diff_points is None or beside is None or found.verdict == "not judged":
            return Found("faster", "")
        said = f"{name_of(quality)} {shown(found.value, quality)}, baseline {shown(beside.mean, quality)}"
        said += f", {seeds} seeds each" if seeds > 1 else ""
        if found.verdict == "worse":
            return Found("worse", said)
        if found.verdict != "unclear":
            return Found("faster", said)
        if found.diff_points >= -margin * self._margin(seeds):
            return Found("faster", f"{said}, unclear")
        return Found("unclear", said)
