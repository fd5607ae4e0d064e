"""The first round's judge: a rung joins the best so far where it is right, faster, and as good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from laptime.catalogue import WITHOUT, batch_of, combine, find_optimization, rung_spec
from laptime.compare.differences import Scores
from laptime.compare.quality import (
    LOWER_IS_BETTER,
    Rules,
    advantage,
    final_quality,
    has_learnt,
    judge,
    noise_points,
    shown,
)
from laptime.ladder.plan import Plan, hopeless, rung_of, untried
from laptime.ladder.seeds import Found
from laptime.records import Outcome, Rung, RunRecord
from laptime.variants import OPTIMIZED, Variant, without

# One process against another: on a shared machine both times wander by tens of percent (docs/log.md, "a ladder in a
# noisy hour"), so a rung this close to the best so far, on either side, is run beside it once more.
CLOSE = 1.25
# Behind the best so far by this much it is run once more where the two can take turns: what is refused wrongly is not
# tried again, while what joins wrongly may leave when each part is left out in turn.
CLOSE_BY_TURNS = 1.6
# A statistical rung within this of the best so far is as fast: what is left to decide it is quality.
AS_FAST = 1.03

# How a rung is called that does not keep quality.
_LOST: dict[Outcome, str] = {
    "worse": "fast, but worse,",
    "unclear": "fast, but perhaps worse,",
    "failed": "fast, but not of every seed,",
}

# Two records of one trial: of what is the best so far, and of what is compared with it.
Both = tuple[RunRecord, RunRecord]


@dataclass(frozen=True)
class Standing:
    """A variant with what it reached in the first round.

    Attributes:
        seconds: its fastest kept epoch; None where nothing ran yet.
        quality: its final quality, from 0 to 1.
    """

    variant: Variant
    seconds: float | None = None
    quality: float | None = None


class Climb:
    """The best so far, and the decision about each rung on top of it.

    Args:
        plan: what is tried.
        baseline: where the climb begins.
        rules: what decides whether quality can be judged.
        quality: the metric's name.
    """

    def __init__(self, plan: Plan, baseline: Standing, rules: Rules, quality: str = "accuracy") -> None:
        self.plan, self.baseline, self.top = plan, baseline, baseline
        self.rules, self.metric = rules, quality

    @property
    def best(self) -> Variant:
        """The best so far."""
        return self.top.variant

    @property
    def can_judge(self) -> bool:
        """Whether the baseline has learnt enough to lose something, of real data."""
        return has_learnt(self.baseline.quality, self.metric, self.rules)

    @property
    def untried_changes(self) -> tuple[str, ...]:
        """Rungs that change what is learnt, and would enter the optimized variant of a short ladder untried."""
        return tuple(name for name in untried(self.plan) if _statistical((name,)))

    def next_rung(self, group: tuple[str, ...]) -> tuple[Variant, Rung]:
        """The variant that tries a group of optimizations on the best so far; it is named after the last."""
        below = self._below(group).variant
        chosen = combine(below.optimizations, *map(rung_spec, group))
        variant = Variant(f"{self.plan.device}-{group[-1]}", self.plan.device, chosen)
        return variant, rung_of(variant, on=below.name, adds="+".join(group))

    def _below(self, group: Sequence[str]) -> Standing:
        """What a rung stands on: the best so far, or the baseline where it takes nothing beside it."""
        alone = any(find_optimization(rung_spec(name).name).alone for name in group)
        return self.baseline if alone else self.top

    def hopeless(self, group: tuple[str, ...]) -> str | None:
        """Why a rung is left out at the batch of the best so far, by its probe; None where it is tried."""
        alone = len(group) == 1
        return (
            hopeless(group[0], batch_of(self.best.optimizations, self.plan.device), self.plan.probe) if alone else None
        )

    def close(self, group: tuple[str, ...], record: RunRecord, reach: float = CLOSE) -> bool:
        """Whether a rung is so near to the best so far that both are to run once more; `reach` is how far behind it."""
        seconds, best = fastest_s(record), self.top.seconds
        if seconds is None or best is None or _only_shown(group):
            return False
        return best / CLOSE <= seconds <= best * reach

    def asks_quality(self, group: tuple[str, ...], record: RunRecord, trial: Both | None = None) -> bool:
        """Whether a rung changes what is learnt and is faster than the best so far, so that quality alone decides.

        One that is only as fast must be better, which a lower mean is not: more trainings would change nothing.
        """
        own, top = Standing(self.best, fastest_s(record)), self._below(group)
        if not self._by_quality(group) or own.seconds is None or top.seconds is None:
            return False
        if trial is not None:
            top, own, _ = with_trial(top, own, trial)
        assert own.seconds is not None
        assert top.seconds is not None
        return own.seconds * AS_FAST < top.seconds

    def judge(
        self, variant: Variant, rung: Rung, record: RunRecord, trial: Both | None = None, found: Found | None = None
    ) -> Rung:
        """Decides whether the added optimizations stay.

        By epochs in turn where a trial had them; else by the fastest kept epoch of each side over its processes: on a
        shared machine others only ever add time.

        Args:
            variant: what was tried.
            rung: its place.
            record: what its process produced.
            trial: one more process of the best so far and one of the variant, run in turn; None where not needed.
            found: what trainings of several seeds say of its quality; by the one process's where None.
        """
        own = Standing(variant, fastest_s(record), final_quality(record, self.metric))
        if own.seconds is None:
            return _decided(rung, False, without_time(record))
        top, said = self._below((rung.adds or "").split("+")), "in the first round"
        if trial is not None:
            top, own, said = with_trial(top, own, trial)
        joined, reason = self._verdict(rung, top, own, found)
        before = f" after {top.seconds:.3g} s" if top.seconds is not None else ""
        replaced = _replaced(top.variant, variant)
        if joined or trial is not None:
            self.top = own if joined else top
        return _decided(rung, joined, f"{replaced}{reason[0]} {said}: {own.seconds:.3g} s an epoch{before}{reason[1]}")

    def _verdict(self, rung: Rung, top: Standing, own: Standing, found: Found | None) -> tuple[bool, tuple[str, str]]:
        """Whether it joins, and why: what stands before and behind the times."""
        assert own.seconds is not None
        added = (rung.adds or "").split("+")
        faster = top.seconds is None or own.seconds < top.seconds
        if _only_shown(added):
            return False, (f"kept for comparison, {'faster' if faster else 'slower'}", "")
        if self._by_quality(added):
            return self._of_quality(top, own, found)
        return faster, ("faster" if faster else "slower", "")

    def _by_quality(self, added: Sequence[str]) -> bool:
        """Whether quality decides: of what changes the trajectory, where the baseline has some to lose."""
        return self.can_judge and _statistical(added)

    def _of_quality(self, top: Standing, own: Standing, found: Found | None) -> tuple[bool, tuple[str, str]]:
        """A statistical rung: faster and not worse than the baseline, or as fast and better than the best so far."""
        base, reached, seconds = self.baseline.quality, own.quality, own.seconds
        if reached is None or base is None or top.seconds is None or seconds is None:
            return False, ("no quality was measured", "")
        values = f"{self.metric} {shown(reached, self.metric)}, baseline {shown(base, self.metric)}"
        if seconds > top.seconds * AS_FAST:
            return False, ("slower", f"; {values}")
        found = found or self._of_one(base, reached, values)
        if found.outcome != "faster":
            return False, (_LOST[found.outcome], f"; {found.said}")
        if seconds * AS_FAST < top.seconds:
            return True, ("faster", f"; {found.said or values}")
        best = top.quality or base
        gain = advantage(reached, best, self.metric)
        noise = noise_points(best, self.rules.test_count, self.metric)
        beside = f"; {self.metric} {gain:+.1f} points beside the best so far, of which {noise:.1f} may be noise"
        if gain > noise:
            return True, ("as fast, and better,", beside)
        return False, ("no faster, and not better,", beside)

    def _of_one(self, base: float, reached: float, values: str) -> Found:
        """What one training of each side says."""
        before, after = (Scores((0,), (value,), self.metric in LOWER_IS_BETTER) for value in (base, reached))
        return Found("worse" if judge(before, after, self.rules).verdict == "worse" else "faster", values)

    def optimized(self, less: Sequence[str] = ()) -> list[tuple[Variant, Rung]]:
        """The best combination, and the same without the optimizations whose share is shown apart.

        A short ladder does not try every rung; those not tried enter too, unless a probe refused them or what they
        would replace has been measured. One that tries none shows no share apart either.

        Args:
            less: untried rungs that stay out; with them what gains only at the batch that they bring.
        """
        device = self.plan.device
        chosen = self.best.optimizations
        for name in (n for n in untried(self.plan) if n not in less and not (less and self.hopeless((n,)))):
            grown = combine(chosen, rung_spec(name))
            # One untried rung may replace another, as by a name's whole list; what has joined stays as it is.
            if all(o in grown for o in self.best.optimizations):
                chosen = grown
        whole = Variant(f"{device}-{OPTIMIZED}", device, chosen)
        apart = WITHOUT.get(device, ()) if self.plan.rungs else ()
        parts = [name for name in apart if any(o.name == name for o in chosen)]
        rest = [without(whole, name) for name in parts]
        return [(whole, rung_of(whole, on=self.best.name)), *((v, rung_of(v, on=None)) for v in rest)]


def standing_of(variant: Variant, records: Sequence[RunRecord], quality: str) -> Standing:
    """What a variant reached in some processes."""
    times = [s for r in records if (s := fastest_s(r)) is not None]
    reached = next((q for r in records if (q := final_quality(r, quality)) is not None), None)
    return Standing(variant, min(times, default=None), reached)


def fastest_s(record: RunRecord) -> float | None:
    """The fastest kept epoch of a run that is done, see `RunRecord.laps`; None otherwise."""
    if record.status != "done" or not record.kept:
        return None
    return min(record.laps)


def without_time(record: RunRecord) -> str:
    """Why a run has no time to be judged by."""
    if record.status == "done":
        return "no epoch was kept, since each of them compiled anew: give it a warm-up epoch"
    return f"{record.status}: {record.error}"


def with_trial(top: Standing, own: Standing, trial: Both) -> tuple[Standing, Standing, str]:
    """Both sides of a comparison with their second process; a trial without a time leaves the first round's.

    Of two that took turns the ratio decides: what each took alone, in minutes of its own, is left out.
    """
    again = [fastest_s(r) for r in trial]
    if None in again or top.seconds is None or own.seconds is None:
        return top, own, "in the first round (a trial of both came to no time)"
    seconds = [min(first, second or first) for first, second in zip((top.seconds, own.seconds), again, strict=True)]
    ratio = ratio_of(trial)
    if ratio is not None:
        return replace(top, seconds=seconds[0]), replace(own, seconds=seconds[0] * ratio), "by turns"
    return replace(top, seconds=seconds[0]), replace(own, seconds=seconds[1]), "in two processes each, in turn"


def ratio_of(pair: Both) -> float | None:
    """The second's epoch over the first's, by epochs that followed each other; None where they took no turns."""
    first, second = (record.laps for record in pair)
    if not (pair[0].beside and pair[1].beside and first and second):
        return None
    if len(first) != len(second):  # images that grow have one mean
        return median(second) / median(first)
    return math.exp(median(math.log(b / a) for a, b in zip(first, second, strict=True)))


def _replaced(before: Variant, after: Variant) -> str:
    names = {o.name: o for o in after.optimizations}
    gone = [o.text() for o in before.optimizations if names.get(o.name) != o]
    return f"in place of {', '.join(gone)}: " if gone else ""


def _decided(rung: Rung, joined: bool, reason: str) -> Rung:
    return rung.model_copy(update={"joined": joined, "reason": reason})


def _only_shown(added: Sequence[str]) -> bool:
    return any(find_optimization(rung_spec(name).name).only_shown for name in added)


def _statistical(added: Sequence[str]) -> bool:
    return any(find_optimization(rung_spec(name).name).klass == "statistical" for name in added)
