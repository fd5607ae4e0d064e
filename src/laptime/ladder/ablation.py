"""Leaves each part of the optimized variant out in turn: a part that is not shown to bring anything leaves it."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from laptime.catalogue import find_optimization
from laptime.compare.quality import advantage, has_learnt, noise_points, rules_of
from laptime.compare.statistics import Estimate, mean_ratio
from laptime.ladder import pairs
from laptime.ladder.advising import mine_of
from laptime.ladder.climb import Standing, fastest_s, standing_of, with_trial
from laptime.ladder.plan import rung_of
from laptime.records import Dropped, Rung
from laptime.variants import Variant, without

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn

# A part that seems to bring less than this is not worth another five pairs to be sure.
_WORTH_ASKING = 1.01


class Ablation:
    """Leaves each part of the optimized variant out in turn; what does not earn its place leaves it.

    By pairs of processes that take turns, where there can be any: a part stays that is shown to make the variant
    faster, or whose quality falls without it. Elsewhere one leaves without which the variant was faster in two
    processes of each side.

    Parts are decided on one after another, so that of two that can stand for each other only one goes, and those first
    that seem to bring least: what is known of the others then holds for the list that is left. What is fixed at the
    end, the optimized variant and each of its parts' absence, has run in the first round as it is: variants that were
    measured while a part was still there that left later are run again.

    Args:
        ladder: whose first round it is.
        whole: the optimized variant with what it reached.
        rung: its place.
    """

    def __init__(self, ladder: Ladder, whole: Standing, rung: Rung) -> None:
        self.ladder, self.whole, self.rung = ladder, whole, rung

    def turns(self) -> Iterator[Turn]:
        """Yields the turns."""
        found: dict[str, float] = {}
        if len(self.whole.variant.optimizations) > 1:
            for name in [o.name for o in self.whole.variant.optimizations]:
                own = yield from self._entered(without(self.whole.variant, name))
                if own.seconds is not None:
                    found[name] = own.seconds
        for name in sorted(found, key=found.__getitem__):
            if len(self.whole.variant.optimizations) > 1:
                yield from self._decide(name)
        yield from self._run_again()

    def _entered(self, variant: Variant, on: str | None = None, reason: str = "") -> Generator[Turn, None, Standing]:
        """A variant of the first round with what it reached; it runs anew where its list has changed since it ran."""
        names = {o.name for o in variant.optimizations}
        ran = self.ladder.variants.get(variant.name)
        if ran is not None and {o.name for o in ran.optimizations} != names:
            self.ladder.retract(variant.name)
            ran = None
        if ran is None:
            yield self.ladder.enter(variant, rung_of(variant, on=on).model_copy(update={"reason": reason}))
        return standing_of(variant, mine_of(self.ladder.runs, variant.name)[:1], self.ladder.record.quality)

    def _decide(self, name: str) -> Iterator[Turn]:
        own = yield from self._entered(without(self.whole.variant, name))
        if own.seconds is None or self.whole.seconds is None or self._worse(name, own):
            return
        if pairs.can_take_turns(self.ladder, self.whole.variant, own.variant):
            yield from self._by_turns(name, own)
        elif own.seconds < self.whole.seconds:
            yield from self._by_trial(name, own)

    def _by_turns(self, name: str, own: Standing) -> Iterator[Turn]:
        whole, seconds = self.whole.variant, self.whole.seconds
        yield from pairs.worth(self.ladder, whole, own.variant)
        worth = self._worth(own.variant)
        if worth is not None and not _shown(worth) and worth.point > _WORTH_ASKING:
            yield from pairs.worth(self.ladder, whole, own.variant)
            worth = self._worth(own.variant)
        if worth is None or seconds is None or _shown(worth):
            return
        low, high = (worth.low or 0.0), (worth.high or 0.0)
        reason = f"{worth.point:.3f} times as long without it ({low:.3f} to {high:.3f}, n = {worth.n} by turns)"
        self._drop(Dropped(name=name, with_s=seconds, without_s=seconds * worth.point, n=worth.n, reason=reason), own)

    def _worth(self, part: Variant) -> Estimate | None:
        """Seconds without a part over seconds with it; None where too few pairs took turns to tell."""
        found = self.ladder.record.worths.get(part.name, ())
        return mean_ratio(found) if len(found) > 1 else None

    def _by_trial(self, name: str, own: Standing) -> Iterator[Turn]:
        yield from pairs.trial(self.ladder, self.whole.variant, own.variant)
        trial = (self.ladder.trials[-2], self.ladder.trials[-1])
        if any(fastest_s(r) is None for r in trial):
            return
        whole, own, said = with_trial(self.whole, own, trial)
        assert whole.seconds is not None
        assert own.seconds is not None
        if own.seconds < whole.seconds:
            reason = f"{whole.seconds:.3g} s an epoch with it, {own.seconds:.3g} s without, {said}"
            self._drop(Dropped(name=name, with_s=whole.seconds, without_s=own.seconds, reason=reason), own)
        else:
            self.whole = whole

    def _worse(self, name: str, own: Standing) -> bool:
        """Whether quality falls without a statistical part by more than noise: then it earns its place by that.

        A training without it that ended with no number at all has lost everything.
        """
        metric, whole = self.ladder.record.quality, self.whole.quality
        rules = rules_of(self.ladder.record, self.ladder.runs)
        base = standing_of(self.ladder.plan.fixed[0], self.ladder.runs, metric)
        judged = find_optimization(name).klass == "statistical" and has_learnt(base.quality, metric, rules)
        if whole is None or not judged:
            return False
        lost = math.inf if own.quality is None else advantage(whole, own.quality, metric)
        return lost > noise_points(whole, rules.test_count, metric)

    def _drop(self, dropped: Dropped, own: Standing) -> None:
        """Takes a part out; what other parts are worth was measured beside the list with it."""
        self.ladder.drop(dropped)
        self.ladder.retract(own.variant.name)
        self.whole = replace(own, variant=replace(own.variant, name=self.whole.variant.name))

    def _run_again(self) -> Iterator[Turn]:
        whole = self.whole.variant
        left = "; ".join(f"{d.name} left: {d.reason}" for d in self.ladder.record.dropped)
        yield from self._entered(whole, self.rung.on, left)
        for part in (without(whole, o.name) for o in whole.optimizations):
            if part.optimizations:
                yield from self._entered(part)
            elif part.name in self.ladder.variants:  # it ran with a part that has left, and without it is the baseline
                self.ladder.retract(part.name)


def _shown(worth: Estimate) -> bool:
    """Whether the variant is shown to be slower without the part."""
    return worth.low is not None and worth.low > 1
