"""How much of a search's budget is left, by what its turns took: one that is gone on with decides alike."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from laptime.ladder.estimate import process_s
from laptime.tune.verdict import MOST

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.records import RunRecord


class Budget:
    """The seconds of a search, from the ladder's first process on, less what the comparison after it will take.

    Args:
        ladder: that is led by the search.

    Attributes:
        took_s: seconds of each variant's first turn, with its check and its profile.
    """

    def __init__(self, ladder: Ladder) -> None:
        self.ladder, self._after, self._expected = ladder, 0.0, 0.0
        self._pairs: list[float] = []
        self.took_s: dict[str, float] = {}

    def settle(self, first: RunRecord, epochs: int) -> None:
        """Reckons what follows the search from the processes that have run: called where it begins.

        Args:
            first: the process of the variant that it begins with.
            epochs: that a search's processes count.
        """
        ladder = self.ladder
        assert first.spec is not None
        # What is found takes about as long as where the search began.
        rounds = [self.round_s(r) for r in (*ladder.runs, first) if r.status == "done"]
        self._after = (ladder.preset.repeats - 1) * sum(rounds) + self.took_s[first.spec.variant]
        more = process_s(first, epochs) - process_s(first, ladder.preset.epochs)
        self._expected = 2 * (self.round_s(first) + more)

    def round_s(self, record: RunRecord) -> float:
        """Seconds of one more process of a variant: never more than its first turn, which had a check and a profile."""
        assert record.spec is not None
        usual = process_s(record, self.ladder.preset.epochs)
        return min(usual, self.took_s.get(record.spec.variant, usual))

    def holds_s(self, seconds: float) -> bool:
        """Whether so much more fits into the whole of it, whatever was to follow."""
        assert self.ladder.request.budget is not None
        return self.spent_s() + seconds <= self.ladder.request.budget

    def spent_s(self) -> float:
        """What the turns so far took."""
        return sum(self.ladder.record.turns_s[: self.ladder.number])

    def paired(self, begun: int) -> None:
        """Notes what a pair took, whether one turn or two: all after the turn of number `begun`."""
        self._pairs.append(sum(self.ladder.record.turns_s[begun : self.ladder.number]))

    def pair_s(self) -> float:
        """What a pair takes, by those so far."""
        return median(self._pairs) if self._pairs else self._expected

    def left_s(self) -> float:
        """What is left for the search."""
        assert self.ladder.request.budget is not None
        return self.ladder.request.budget - self.spent_s() - self._after - MOST * self.pair_s()

    def holds(self, pairs: int) -> bool:
        """Whether there is time for so many pairs more.

        Before the first pair all is reckoned from one process, whose minute may have been a slow one: that is tried
        where there is time for it and what follows.
        """
        if not self._pairs:
            return self.left_s() + MOST * self._expected >= self._expected
        return self.left_s() >= pairs * self.pair_s()

    def after_s(self) -> float:
        """Seconds of what follows the search."""
        return self._after + MOST * self.pair_s()

    def turns_left(self, moves: int) -> int:
        """About how many more turns there is time for, and use: a first pair of each move left, and all that decide."""
        return min(max(0, int(self.left_s() / self.pair_s())), (1 + MOST) * moves) + MOST
