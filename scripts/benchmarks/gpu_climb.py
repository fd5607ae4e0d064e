"""The rungs of `scripts/bench gpu`, each on the best so far, over all goes in one folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_plan import further_try, rung_step

from laptime.compare.quality import Rules
from laptime.ladder.climb import Climb, standing_of
from laptime.variants import baseline_of

if TYPE_CHECKING:
    from gpu_bench import Bench

# One epoch says nothing of quality, so rungs are judged by their times alone.
_BY_TIME = Rules(floor=0.0, real_data=False, test_count=0)

Group = tuple[str, ...]


class Rungs:
    """The climb of a bench.

    Args:
        bench: which takes the steps; the baseline, where it ran, is where the climb begins.
    """

    def __init__(self, bench: Bench) -> None:
        baseline, quality = baseline_of(bench.asked.device), bench.record.quality
        standing = standing_of(baseline, bench.runs.get(baseline.name, []), quality)
        self._bench, self._climb = bench, Climb(bench.plan, standing, _BY_TIME, quality)

    def tried(self) -> list[Group]:
        """Tries all rungs, as they came in an earlier go; returns those that failed, which no other one stands on."""
        return self._take(sorted(self._bench.plan.rungs, key=self._place))

    def again(self, failed: Iterable[Group]) -> None:
        """Tries what failed once more, each where as much of the budget is left as its first try had."""
        self._take(failed, further=True)

    def _place(self, group: Group) -> tuple[int, float]:
        """What ran before in its order, so that each is judged beside the best of its time; what failed comes last."""
        variant, rung = self._climb.next_rung(group)
        step = rung_step(variant, rung)
        kept = self._bench.kept(step)
        if kept is not None:
            return 0, kept.started_at or 0.0
        return (2 if self._bench.failed_before(step) else 1), 0.0

    def _take(self, groups: Iterable[Group], further: bool = False) -> list[Group]:
        failed = []
        for group in groups:
            variant, rung = self._climb.next_rung(group)
            if variant.optimizations == self._climb.best.optimizations:
                continue  # a second try of what joined at the first
            step = rung_step(variant, rung)
            record = self._bench.take(further_try(step) if further else step)
            if record is None:
                continue
            chosen = replace(variant, optimizations=record.settled or variant.optimizations)
            self._bench.put(self._climb.judge(chosen, rung, record))
            if record.status == "failed":
                failed.append(group)
        return failed
