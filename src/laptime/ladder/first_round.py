"""The first round: tries each rung on the best so far, then leaves each part of the optimized variant out in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from laptime.catalogue import find_optimization
from laptime.compare.quality import advantage, noise_points, rules_of
from laptime.errors import UsageError
from laptime.ladder import pairs
from laptime.ladder.climb import CLOSE, CLOSE_BY_TURNS, Climb, Standing, fastest_s, standing_of, with_trial
from laptime.ladder.plan import rung_of
from laptime.ladder.request import check_variant
from laptime.records import Dropped, Rung
from laptime.variants import Variant, on_several, without

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn


def first_round(ladder: Ladder) -> Iterator[Turn]:
    """Yields the turns of the first round, and decides between them what the later rounds repeat."""
    baseline = ladder.plan.fixed[0]
    for variant in ladder.plan.fixed:
        yield ladder.enter(variant, rung_of(variant, on=None if variant is baseline else baseline.name))
    if not ladder.plan.adaptive:
        return
    quality = ladder.record.quality
    climb = Climb(ladder.plan, standing_of(baseline, ladder.runs, quality), rules_of(ladder.record), quality)
    for group in ladder.plan.rungs:
        yield from _try(ladder, climb, group)
    (whole, rung), *others = climb.optimized()
    yield ladder.enter(whole, rung)
    if ladder.preset.ablation:
        yield from Ablation(ladder, standing_of(whole, ladder.runs[-1:], quality), rung).turns()
    else:
        for variant, rung in others:
            yield ladder.enter(variant, rung)
    best = ladder.variants[whole.name]  # as the ablation left it
    yield from _on_several(ladder, best)


def _on_several(ladder: Ladder, best: Variant) -> Iterator[Turn]:
    """The list that was kept, on several devices; it may lack the large batch that gave each rank its two samples."""
    for variant in (on_several(best, name, workload=ladder.request.workload) for name in ladder.plan.parallel):
        try:
            check_variant(ladder.request, variant, ladder.record.data)
        except UsageError as error:
            ladder.leave_out(variant.name, str(error))
        else:
            yield ladder.enter(variant, rung_of(variant, on=best.name))


def _try(ladder: Ladder, climb: Climb, group: tuple[str, ...]) -> Iterator[Turn]:
    """Tries one group of optimizations, with one trial of both sides where one process can't tell them apart."""
    reason = climb.hopeless(group)
    if reason:
        ladder.leave_out(f"{ladder.plan.device}-{group[-1]}", reason)
        return
    variant, rung = climb.next_rung(group)
    if variant.optimizations == climb.best.optimizations:
        return  # a second try of what joined at the first
    yield ladder.enter(variant, rung)
    first, trial = ladder.runs[-1], None
    by_turns = pairs.can_take_turns(ladder, climb.best, variant)
    if climb.close(group, first, CLOSE_BY_TURNS if by_turns else CLOSE):
        yield from pairs.trial(ladder, climb.best, variant)
        trial = (ladder.trials[-2], ladder.trials[-1])
    ladder.replace_rung(climb.judge(variant, rung, first, trial))


class Ablation:
    """Leaves each part of the optimized variant out in turn; a part without which it is faster leaves it.

    One after another, so that of two parts that can stand for each other only one goes. What is fixed at the end, the
    optimized variant and each of its parts' absence, has run in the first round as it is: variants that were measured
    while a part was still there that left later are run again.

    Args:
        ladder: whose first round it is.
        whole: the optimized variant with what it reached.
        rung: its place.
    """

    def __init__(self, ladder: Ladder, whole: Standing, rung: Rung) -> None:
        self.ladder, self.whole, self.rung = ladder, whole, rung

    def turns(self) -> Iterator[Turn]:
        """Yields the turns."""
        for name in [o.name for o in self.whole.variant.optimizations]:
            if len(self.whole.variant.optimizations) > 1:
                yield from self._leave_out(name)
        yield from self._run_again()

    def _leave_out(self, name: str) -> Iterator[Turn]:
        part = without(self.whole.variant, name)
        yield self.ladder.enter(part, rung_of(part, on=None))
        own = standing_of(part, self.ladder.runs[-1:], self.ladder.record.quality)
        if own.seconds is None or self.whole.seconds is None or own.seconds >= self.whole.seconds:
            return
        if self._worse(name, own):
            return
        yield from pairs.trial(self.ladder, self.whole.variant, part)
        trial = (self.ladder.trials[-2], self.ladder.trials[-1])
        if any(fastest_s(r) is None for r in trial):
            return
        whole, own, said = with_trial(self.whole, own, trial)
        assert whole.seconds is not None
        assert own.seconds is not None
        if own.seconds < whole.seconds:
            self._drop(name, whole.seconds, own, said)
        else:
            self.whole = whole

    def _worse(self, name: str, own: Standing) -> bool:
        """Whether quality falls without a statistical part by more than noise: then it earns its place by that."""
        if find_optimization(name).klass != "statistical" or None in (own.quality, self.whole.quality):
            return False
        metric, whole = self.ladder.record.quality, self.whole.quality or 0.0
        lost = advantage(whole, own.quality or 0.0, metric)
        rules = rules_of(self.ladder.record)
        return rules.real_data and lost > noise_points(whole, rules.test_count, metric)

    def _drop(self, name: str, with_s: float, own: Standing, said: str) -> None:
        seconds = own.seconds or 0.0
        reason = f"{with_s:.3g} s an epoch with it, {seconds:.3g} s without, {said}"
        self.ladder.drop(Dropped(name=name, with_s=with_s, without_s=seconds, reason=reason))
        self.ladder.retract(own.variant.name)
        variant = replace(own.variant, name=self.whole.variant.name)
        self.whole = Standing(variant, own.seconds, own.quality)

    def _run_again(self) -> Iterator[Turn]:
        whole = self.whole.variant
        for variant in (whole, *(without(whole, o.name) for o in whole.optimizations)):
            names = {o.name for o in variant.optimizations}
            ran = self.ladder.variants.get(variant.name)
            if ran is not None and {o.name for o in ran.optimizations} != names:
                self.ladder.retract(variant.name)
                ran = None
            if ran is None and names:
                left = "; ".join(f"{d.name} left: {d.reason}" for d in self.ladder.record.dropped)
                rung = rung_of(variant, on=self.rung.on if variant is whole else None)
                yield self.ladder.enter(variant, rung.model_copy(update={"reason": left if variant is whole else ""}))
