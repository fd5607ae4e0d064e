"""The first round: tries each rung on the best so far, then has `ablation` leave out each part of what is optimized."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from laptime.compare.quality import judge, rules_of, scores_of
from laptime.errors import UsageError
from laptime.ladder import counted, pairs
from laptime.ladder.ablation import Ablation
from laptime.ladder.climb import CLOSE, CLOSE_BY_TURNS, Climb, standing_of
from laptime.ladder.plan import rung_of
from laptime.ladder.request import check_variant
from laptime.ladder.seeds import Trainings
from laptime.ladder.unchanged import unchanged
from laptime.launchers.base import LOG
from laptime.records import Rung, RunRecord
from laptime.tracking.publish import run_folder
from laptime.variants import OPTIMIZED, Variant, on_several

if TYPE_CHECKING:
    from laptime.ladder.plan import Plan
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn

# Variants with their places in a ladder.
Combined = list[tuple[Variant, Rung]]
# Why a variant is left out of a ladder that has nothing to compare it with: hours might go by for it.
NOT_TRIED = "not tried, since the baseline failed"
# Why there is no optimized variant: a second baseline would be as fast as the first or, by chance, a little faster.
NOTHING_JOINED = "nothing that was tried made the baseline faster, so it would be the baseline once more"
# Why what changes what is learnt is in no optimized variant of a short ladder.
_UNJUDGED = (
    "not tried: it changes what is learnt, and whether as much is can't be judged here ({}); give --preset full, or "
    "name it (--variants)"
)


def first_round(ladder: Ladder) -> Iterator[Turn]:
    """Yields the turns of the first round, and decides between them what the later rounds repeat."""
    baseline, *named = ladder.plan.fixed
    yield ladder.enter(baseline, rung_of(baseline, on=None))
    if counted.settle(ladder):
        ladder.retract(baseline.name)
        yield ladder.enter(baseline, rung_of(baseline, on=None))
    if ends_all(ladder, ladder.runs[-1]):
        for name in _after_baseline(ladder.plan):
            ladder.leave_out(name, NOT_TRIED)
        return
    for variant in named:
        yield ladder.enter(variant, rung_of(variant, on=baseline.name))
    if ladder.plan.adaptive:
        yield from _climbed(ladder, baseline)


def _climbed(ladder: Ladder, baseline: Variant) -> Iterator[Turn]:
    """Yields the turns of the rungs, of what they come to, and of that on several devices."""
    quality, rules = ladder.record.quality, rules_of(ladder.record, ladder.runs)
    climb = Climb(ladder.plan, standing_of(baseline, ladder.runs, quality), rules, quality)
    trainings = Trainings(ladder, baseline)
    for group in ladder.plan.rungs:
        yield from _try(ladder, climb, group, trainings)
    (whole, rung), *others = yield from _optimized(ladder, climb, trainings)
    if not whole.optimizations:
        ladder.leave_out(whole.name, NOTHING_JOINED)
    elif ladder.preset.ablation:
        yield from Ablation(ladder, standing_of(whole, ladder.runs[-1:], quality), rung).turns()
    else:
        for variant, rung in others:
            yield ladder.enter(variant, rung)
    best = ladder.variants.get(whole.name, baseline)  # as the ablation left it
    yield from _on_several(ladder, best)


def _optimized(ladder: Ladder, climb: Climb, trainings: Trainings) -> Generator[Turn, None, Combined]:
    """Runs the best combination; gives it, and the same without what is shown apart.

    What changes what is learnt and has no rung of its own in a short ladder is in it only where trainings of the
    whole keep quality; else it is left out, with the reason.
    """
    news = climb.untried_changes
    why = _UNJUDGED.format(_why_unjudged(ladder)) if news and not climb.can_judge else ""
    found = climb.optimized(news if why else ())
    whole, rung = found[0]
    if whole.optimizations:
        yield ladder.enter(whole, rung)
    if news and not why and ladder.runs[-1].status == "done":
        several = ladder.preset.repeats > 1
        said = yield from trainings.settled(whole, ladder.runs[-1], 1, 1, lambda _: several)
        ladder.replace_rung(rung.model_copy(update={"reason": f"with {', '.join(news)}, untried before: {said.said}"}))
        if said.outcome != "faster":
            why = f"{whole.name} seemed to learn less with it: {said.said}"
            ladder.retract(whole.name)
            found = climb.optimized(news)
            if found[0][0].optimizations:
                yield ladder.enter(*found[0])
    for name in news if why else ():
        ladder.leave_out(f"{ladder.plan.device}-{name}", why)
    return found


def _why_unjudged(ladder: Ladder) -> str:
    mine = scores_of(ladder.runs[:1], ladder.record.quality)
    return judge(mine, mine, rules_of(ladder.record, ladder.runs)).reason


def ends_all(ladder: Ladder, record: RunRecord) -> bool:
    """Whether this is the record of a baseline that failed, with which there is nothing to compare the others with."""
    baseline = ladder.plan.fixed[0].name
    first = record.spec is not None and (record.spec.variant, record.spec.repeat) == (baseline, 0)
    return first and record.status != "done" and _asked_for(ladder, baseline)


def tried_alone(ladder: Ladder) -> bool:
    """Whether the baseline was, since it failed: there is no comparison worth showing."""
    return any(left.reason == NOT_TRIED for left in ladder.record.left_out)


def what_failed(ladder: Ladder, first: RunRecord, variant: str) -> str:
    """What a ladder failed by, where this is its first record that failed, of this variant; with the log's place."""
    what = "every contender failed"
    if variant == ladder.plan.fixed[0].name:
        again = f", so nothing else was tried (the same once more: --resume {ladder.folder})"
        again = again if tried_alone(ladder) else ""
        what = f"the baseline failed{again}"
    log = run_folder(ladder.folder, variant, first.spec.repeat if first.spec else 0) / LOG
    return f"{what}; {variant}: {(first.error or '').replace(f'see {LOG}', f'see {log}')}"


def _asked_for(ladder: Ladder, baseline: str) -> bool:
    """Whether the others are there to be compared with the baseline, and not by names of their own without it."""
    return not ladder.request.variants or baseline in ladder.request.variants


def _after_baseline(plan: Plan) -> Iterator[str]:
    """The variants of a plan, as far as they have names before any of them has run."""
    yield from (variant.name for variant in plan.fixed[1:])
    yield from (f"{plan.device}-{group[-1]}" for group in plan.rungs)
    if plan.adaptive:
        yield f"{plan.device}-{OPTIMIZED}"
    yield from plan.parallel


def _on_several(ladder: Ladder, best: Variant) -> Iterator[Turn]:
    """The list that was kept, on several devices; it may lack the large batch that gave each rank its two samples."""
    for variant in (on_several(best, name, workload=ladder.request.workload) for name in ladder.plan.parallel):
        try:
            check_variant(ladder.request, variant, ladder.record.data)
        except UsageError as error:
            ladder.leave_out(variant.name, str(error))
        else:
            yield ladder.enter(variant, rung_of(variant, on=best.name))


def _try(ladder: Ladder, climb: Climb, group: tuple[str, ...], trainings: Trainings) -> Iterator[Turn]:
    """Tries one group of optimizations, with one trial of both sides where one process can't tell them apart.

    What changes the trajectory and seems to lose more than the margin by one training has others, where the ladder has
    rounds enough for its own comparison to tell.
    """
    reason = climb.hopeless(group)
    if reason:
        ladder.leave_out(f"{ladder.plan.device}-{group[-1]}", reason)
        return
    variant, rung = climb.next_rung(group)
    if variant.optimizations == climb.best.optimizations:
        return  # a second try of what joined at the first
    yield ladder.enter(variant, rung)
    first, trial = ladder.runs[-1], None
    same = unchanged(group, first, ladder.runs[0])
    if same is not None:
        ladder.retract(variant.name)
        ladder.leave_out(variant.name, same)
        return
    by_turns = pairs.can_take_turns(ladder, climb.best, variant)
    if climb.close(group, first, CLOSE_BY_TURNS if by_turns else CLOSE):
        yield from pairs.trial(ladder, climb.best, variant)
        trial = (ladder.trials[-2], ladder.trials[-1])
    found = None
    if ladder.preset.repeats > 1 and climb.asks_quality(group, first, trial):
        found = yield from trainings.settled(variant, first, 1, 1)
    ladder.replace_rung(climb.judge(variant, rung, first, trial, found))
