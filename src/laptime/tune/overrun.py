"""Why a search runs what its budget does not hold, said when it begins: nobody sees it from a row of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laptime.compare.words import plural
from laptime.durations import in_time
from laptime.tune.budget import Budget
from laptime.tune.foresight import too_short
from laptime.variants import Variant

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder


class Overrun:
    """Says it.

    Args:
        ladder: whose search it is.
        budget: of the search.
        told: whether it has been said that the budget is too small.
    """

    def __init__(self, ladder: Ladder, budget: Budget, told: bool) -> None:
        self._ladder, self._budget, self._told = ladder, budget, told

    def tell(self, text: str) -> None:
        """Says that the budget is too small, once."""
        if not self._told:
            self._ladder.say(f"NOTICE: {text}")
        self._told = True

    def after_baseline(self, base: Variant) -> None:
        """Where the baseline and its own further rounds are more than the budget, with no look at what follows."""
        more = self._ladder.preset.repeats - 1
        if self._budget.holds_s(more * self._budget.round_s(self._ladder.runs[0])):
            return
        rounds = f" and {plural(more, 'more round')} of both" if more else ""
        took = f"{base.name} took {in_time(self._budget.took_s[base.name])}"
        self.tell(
            f"{too_short(self._given_s, took)}. Where the search begins{rounds} run all the same, for without them "
            "there is nothing to compare."
        )

    def second_list(self, rest: Variant, whole: Variant) -> None:
        """Where a second list to begin with is trained, and there is no time for it and the rounds after it."""
        ladder, budget = self._ladder, self._budget
        done = [r for r in (*ladder.runs, ladder.runs[-1]) if r.status == "done"]  # it takes as long as the first list
        after_s = (ladder.preset.repeats - 1) * sum(map(budget.round_s, done))
        if not budget.holds_s(budget.took_s[whole.name] + after_s):
            ladder.say(
                f"NOTICE: {rest.name} runs though the budget of {in_time(self._given_s)} may not hold it: "
                f"{whole.name} is not both faster and as good, and there is nothing else to begin with."
            )

    @property
    def _given_s(self) -> float:
        given = self._ladder.request.budget
        assert given is not None
        return given
