"""What a remedy brought, by the records of its rounds: the gain with its interval, and whether quality was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from laptime.compare import words
from laptime.compare.differences import Scores
from laptime.compare.quality import Judgement, Rules, judge, name_of, rules_of, scores_of, shown
from laptime.compare.statistics import Bootstrap, Estimate, Laps, epoch_seconds, mean_ratio
from laptime.ladder.climb import Both, ratio_of
from laptime.ladder.counted import short
from laptime.ladder.remedies import Group, Remedy, alike, broken
from laptime.records import Measured, RunRecord
from laptime.variants import Variant

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder

_KEPT = {"kept": True, "better": True, "worse": False}
_SAID = {"worse": "lost"}


def outcome(ladder: Ladder, group: Group, remedy: Remedy) -> Measured | None:
    """What a remedy brought as far as it has run; None where no round of it is whole."""
    if remedy.pairs:
        return _by_turns(remedy.pairs).model_copy(update=_quality(ladder, group, remedy, remedy.pairs))
    for name, side in ((group.advised.name, group.rounds), (remedy.variant.name, remedy.rounds)):
        failed = broken(side)
        if failed is not None:
            return Measured(error=f"{name} {failed.status}: {failed.error}")
    pairs = {r: (group.rounds[r], remedy.rounds[r]) for r in sorted(group.rounds.keys() & remedy.rounds.keys())}
    timed = {r: pair for r, pair in pairs.items() if all(record.laps for record in pair)}
    if not timed:
        return Measured(error="no epoch was kept, since each of them compiled anew") if pairs else None
    gain = _in_rounds(timed, ladder.record.seed)
    return gain.model_copy(update=_quality(ladder, group, remedy, list(pairs.values())))


def lacks_training(ladder: Ladder, group: Group, remedy: Remedy) -> bool:
    """Whether only a whole training can tell what a remedy learns, and its gain so far does not speak against it."""
    if remedy.learns_alike or ladder.record.epochs <= short(ladder):
        return False
    known = scores_of(trained(ladder, group.advised), ladder.record.quality)
    if trained(ladder, remedy.variant) or _can_not_be_judged(known, rules_of(ladder.record, ladder.runs)):
        return False
    found = outcome(ladder, group, remedy)
    return found is None or (found.gain is not None and found.gain > 0)


def trained(ladder: Ladder, variant: Variant) -> list[RunRecord]:
    """Processes that trained as many epochs as the ladder asks for with what a variant stands for, whatever its name.

    Those of the ladder's rounds, else what verified advice: seeds come once.
    """
    same = {name for name, known in ladder.variants.items() if alike(known, variant)}
    rounds = [r for r in ladder.runs if r.spec and r.spec.variant in same]
    aside = [r for r in ladder.verified if r.spec and r.spec.optimizations == variant.optimizations]
    for some in (rounds, aside):
        whole = [r for r in some if r.status == "done" and len(r.epochs) >= ladder.record.epochs]
        if whole:
            return whole
    return []


def _by_turns(pairs: Sequence[Both]) -> Measured:
    """What the remedy brings by the ratios of epochs in turn."""
    took = mean_ratio([ratio for pair in pairs if (ratio := ratio_of(pair)) is not None])
    return _measured(took, median([lap for advised, _ in pairs for lap in advised.laps]), pairs[0][0])


def _in_rounds(timed: Mapping[int, tuple[RunRecord, RunRecord]], seed: int) -> Measured:
    """What epochs of the same samples took on both sides, by the rounds that both came through."""
    before, after = (
        Laps(name, tuple(timed), tuple(pair[side].laps for pair in timed.values()))
        for side, name in enumerate(("advised", "remedy"))
    )
    return _measured(Bootstrap(seed=seed).ratio(after, before), epoch_seconds(before), next(iter(timed.values()))[0])


def _measured(took: Estimate, before_s: float, advised: RunRecord) -> Measured:
    """By the remedy's epoch over the advised variant's, in the steps of that: a remedy may have another batch."""
    steps = advised.epochs[0].steps
    return Measured(
        step_ms=before_s * took.point / steps * 1000 if steps else None,
        step_ms_before=before_s / steps * 1000 if steps else None,
        gain=1 - took.point,
        gain_low=None if took.high is None else 1 - took.high,
        gain_high=None if took.low is None else 1 - took.low,
        n=took.n,
    )


def _quality(ladder: Ladder, group: Group, remedy: Remedy, pairs: Sequence[Both]) -> dict[str, Any]:
    """By the comparison's rule; a remedy that changes what is learnt is judged by whole trainings alone."""
    record = ladder.record
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    short = any(len(r.epochs) < record.epochs for side in sides for r in side)
    if short and not remedy.learns_alike:
        sides = [trained(ladder, group.advised), trained(ladder, remedy.variant)]
    before, after = (scores_of(side, record.quality) for side in sides)
    rules = rules_of(record, ladder.runs)
    found = judge(before, after, rules)
    if after is None and _can_not_be_judged(before, rules):
        found = judge(before, before, rules)  # says why there was no training
    return {"quality_kept": _KEPT.get(found.verdict), "quality": _in_words(found, record.quality)}


def _can_not_be_judged(advised: Scores | None, rules: Rules) -> bool:
    """Whether nothing a remedy reaches could be judged beside what it is advised on."""
    return judge(advised, advised, rules).verdict == "not judged"


def _in_words(found: Judgement, quality: str) -> str:
    if found.verdict == "not judged" or found.value is None:
        return f"quality not judged: {found.reason}"
    beside = words.difference_span(found.diff_points, found.low_points, found.high_points, quality)
    value = f"{name_of(quality)} {shown(found.value, quality)}"
    return f"quality {_SAID.get(found.verdict, found.verdict)}: {value} ({beside})"
