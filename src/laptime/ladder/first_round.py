"""The first round: tries each rung on the best so far, then has `ablation` leave out each part of what is optimized."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from laptime.compare.quality import rules_of
from laptime.errors import UsageError
from laptime.ladder import pairs
from laptime.ladder.ablation import Ablation
from laptime.ladder.climb import CLOSE, CLOSE_BY_TURNS, Climb, standing_of
from laptime.ladder.plan import rung_of
from laptime.ladder.request import check_variant
from laptime.variants import Variant, on_several

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
