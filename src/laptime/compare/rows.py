"""From the records of one variant to its row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laptime.compare.curves import time_to_quality
from laptime.compare.differences import Scores
from laptime.compare.model import VariantRow
from laptime.compare.parts import parts_of
from laptime.compare.quality import Judgement, Rules, has_learnt, judge, name_of, scores_of, without_quality
from laptime.compare.statistics import Bootstrap, Estimate, Laps, mean_ratio
from laptime.records import Ceilings, Rung, RunRecord, Status
from laptime.records.rates import ceiling_share, counts, middle, rate

# What is measured beside a quality metric, and not judged.
_STRICT = {"map50": "map"}


@dataclass(frozen=True)
class Runs:
    """One variant's place in the ladder and the records of its processes."""

    rung: Rung
    records: tuple[RunRecord, ...] = ()
    left_out: str | None = None

    @property
    def status(self) -> Status:
        """A wrong process makes the variant wrong; else one that ended makes it done."""
        found = {r.status for r in self.records}
        order: tuple[Status, ...] = ("wrong", "done", "failed", "left_out")
        return next((s for s in order if s in found), "left_out")

    @property
    def done(self) -> tuple[RunRecord, ...]:
        """The records that count: none where any process was wrong, for its time is not to be believed."""
        return tuple(r for r in self.records if r.status == "done") if self.status == "done" else ()

    @property
    def laps(self) -> Laps | None:
        """The kept epochs of the processes that ended and kept any."""
        timed = [(r.spec.repeat if r.spec else 0, _seconds(r)) for r in self.done]
        known = [(round_, times) for round_, times in timed if times]
        if not known:
            return None
        return Laps(self.rung.variant, tuple(r for r, _ in known), tuple(t for _, t in known))

    @property
    def error(self) -> str | None:
        """What went wrong in the first process that did not end well, and how many did not."""
        bad = [r for r in self.records if r.status in ("failed", "wrong")]
        if not bad:
            return _none_kept(self.done) if self.done and self.laps is None else None
        first = next((r for r in bad if r.status == self.status), bad[0])
        text = _wrong(first) if first.status == "wrong" else first.error or "it failed without a message"
        return text if len(bad) == len(self.records) else f"{len(bad)} of {len(self.records)} processes: {text}"


@dataclass(frozen=True)
class Context:
    """What every row is compared with."""

    baseline: Runs
    runs: dict[str, Runs]
    bootstrap: Bootstrap
    rules: Rules
    quality: str
    ceilings: Ceilings
    confirmed: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def baseline_scores(self) -> Scores | None:
        return scores_of(self.baseline.done, self.quality)


OTHER = "it trains another workload or amount of data than the baseline"


def row_of(runs: Runs, context: Context) -> VariantRow:
    """Builds a variant's row."""
    rung = runs.rung
    return VariantRow(
        variant=rung.variant,
        ranks=max((r.ranks for r in runs.done), default=1),
        status=runs.status,
        error=runs.error,
        optimizations=tuple(o.text() for o in rung.optimizations),
        names=tuple(o.name for o in rung.optimizations),
        classes=rung.classes,
        on=rung.on,
        adds=rung.adds,
        joined=rung.joined,
        reason=_reason(runs),
        check=next((r.check for r in runs.records if r.check and r.status == runs.status), None),
        notes=tuple(dict.fromkeys(n for r in runs.records for n in r.notes)),
        **_times(runs, context),
        **_quality(runs, context),
        **_costs(runs),
        **_ceiling(runs, context.ceilings),
    )


def _times(runs: Runs, context: Context) -> dict[str, Any]:
    laps = runs.laps
    if laps is None:
        return {}
    time = context.bootstrap.time(laps)
    fields: dict[str, Any] = {"n": laps.n, "n_epochs": laps.n_epochs, "epoch_s": time.point}
    fields |= {"epoch_s_low": time.low, "epoch_s_high": time.high, "samples_per_s": rate(runs.done)}
    base = context.baseline.laps
    if base is not None and runs is context.baseline:
        fields |= {"speedup": 1.0, "speedup_n": laps.n}
    elif base is not None and of_one_training(runs, context.baseline):
        ratio = _faster(context.baseline, runs, context)
        fields |= {"speedup": ratio.point, "speedup_low": ratio.low, "speedup_high": ratio.high}
        fields |= {"speedup_n": ratio.n, "by_turns": _turned(context.baseline, runs, context) is not None}
    on = context.runs.get(runs.rung.on) if runs.rung.on else None
    if on is not None and on.laps is not None:
        step = _faster(on, runs, context)
        fields |= {"contribution": step.point, "contribution_low": step.low, "contribution_high": step.high}
    return fields


def _faster(before: Runs, runs: Runs, context: Context) -> Estimate:
    """How many times as fast a variant is as another one, both of which have been timed."""
    assert before.laps is not None
    assert runs.laps is not None
    return _turned(before, runs, context) or context.bootstrap.ratio(before.laps, runs.laps)


def _turned(before: Runs, runs: Runs, context: Context) -> Estimate | None:
    """The same by pairs that trained by turns, which there are beside the baseline, where rounds left it open."""
    ratios = context.confirmed.get(runs.rung.variant, ()) if before is context.baseline else ()
    return mean_ratio([1 / ratio for ratio in ratios]) if len(ratios) > 1 else None


def of_one_training(runs: Runs, baseline: Runs) -> bool:
    """Whether a variant's epochs are of the baseline's workload and as many samples; else no ratio means anything."""
    specs = [r.spec for r in (*runs.done, *baseline.done) if r.spec is not None]
    return len({(spec.workload, spec.limit_train) for spec in specs}) <= 1


def _quality(runs: Runs, context: Context) -> dict[str, Any]:
    base, own = context.baseline_scores, scores_of(runs.done, context.quality)
    beside = {"quality_strict": _strict_mean(runs.done, context.quality)}
    if runs is context.baseline:
        value, reached = own.mean if own else None, time_to_quality(runs.done, context.quality, None)
        return {**beside, "quality": value, "verdict_reason": "the baseline", "time_to_accuracy_s": reached}
    if not runs.done:
        return {"verdict_reason": "it did not finish"}
    if not of_one_training(runs, context.baseline):
        return {**beside, "quality": own.mean if own else None, "verdict_reason": OTHER}
    found = _judged(runs, context)
    reached = time_to_quality(runs.done, context.quality, base.mean) if base and own else None
    return {
        **beside,
        "quality": found.value,
        "quality_diff_points": found.diff_points,
        "quality_low_points": found.low_points,
        "quality_high_points": found.high_points,
        "verdict": found.verdict,
        "verdict_reason": found.reason,
        "time_to_accuracy_s": reached,
    }


def _strict_mean(records: Sequence[RunRecord], quality: str) -> float | None:
    """The mean of what is measured beside a quality, a detector's mAP at 0.5:0.95; None where there is none."""
    found = scores_of(records, _STRICT[quality]) if quality in _STRICT else None
    return found.mean if found else None


def _judged(runs: Runs, context: Context) -> Judgement:
    """By the final quality of what trained alike; a training that came to none is a loss, whatever others reached."""
    base, own, quality = context.baseline_scores, scores_of(runs.done, context.quality), context.quality
    found, other = judge(base, own, context.rules), _of_other_origin(runs.done, context.baseline.done)
    if other and base and own:
        return Judgement("not judged", f"it has {other} than the baseline", found.value)
    lost, beside = (sum(without_quality(r, quality) for r in side.records) for side in (runs, context.baseline))
    if lost and base and has_learnt(base.mean, quality, context.rules):
        text = f"{lost} of its {len(runs.records)} trainings came to no {name_of(quality)}"
        if beside:
            return Judgement("not judged", f"{text}, and {beside} of the baseline's {len(context.baseline.records)}")
        return Judgement("worse", text, own.mean if own else None)
    trained, compared = _trained(runs.done), _trained(context.baseline.done)
    if (trained != compared or len(trained) > 1) and base and own:
        # How far each has come says nothing of which comes further.
        reason = f"it trained for {_epochs(trained)}, the baseline for {_between(compared)}"
        return Judgement("not judged", reason, found.value)
    return found


def _of_other_origin(records: Sequence[RunRecord], baseline: Sequence[RunRecord]) -> str:
    """What makes a quality another one whatever was optimized; empty where all is alike."""
    specs = [r.spec for r in (*records, *baseline) if r.spec is not None]
    seen: dict[str, set[object]] = {
        "other data": {s.data.digest for s in specs if s.data.digest},
        "another number of test samples": {s.limit_test for s in specs},
        "other initial weights": {s.weights for s in specs},
    }
    return " and ".join(what for what, values in seen.items() if len(values) > 1)


def _trained(records: Sequence[RunRecord]) -> tuple[int, ...]:
    """Epochs of its processes: one count, or several where some were cut off; they are then least and most."""
    found = {len(r.epochs) for r in records}
    return tuple(sorted({min(found, default=0), max(found, default=0)}))


def _epochs(found: tuple[int, ...]) -> str:
    return f"{_between(found)} {'epoch' if found == (1,) else 'epochs'}"


def _between(found: tuple[int, ...]) -> str:
    return " to ".join(map(str, found))


def _costs(runs: Runs) -> dict[str, Any]:
    done = runs.done
    return {
        "peak_memory_mib": max((m for r in done if (m := _memory(r)) is not None), default=None),
        "parts": parts_of([e for r in done for e in r.kept if counts(e)]),
        "warmup_s": middle(r.warmup_s for r in done),
        "startup_s": middle(r.startup_s for r in done),
        "removed_parameters": max((r.removed_parameters for r in done), default=0),
    }


def _ceiling(runs: Runs, ceilings: Ceilings) -> dict[str, Any]:
    """Share of the machine's ceiling in the variant's precision, see `ceiling_share`."""
    if not runs.done:
        return {}
    share = ceiling_share(runs.done, ceilings)
    if share is None:
        return {"precision": runs.done[0].precision}
    return {
        "precision": runs.done[0].precision,
        "ceiling_share": share,
        "ceiling_note": "ceiling underestimated" if share > 1 else "",
    }


def _memory(record: RunRecord) -> float | None:
    known = [record.peak_memory_mib, *(e.peak_memory_mib for e in record.epochs)]
    return max((m for m in known if m is not None and math.isfinite(m)), default=None)


def _seconds(record: RunRecord) -> tuple[float, ...]:
    return tuple(s for s in record.laps if math.isfinite(s) and s > 0)


def _none_kept(done: Sequence[RunRecord]) -> str:
    if any(e.compilations for r in done for e in r.epochs):
        return "no epoch was kept, since each of them compiled anew: give it a warm-up epoch"
    return "no epoch was kept"


def _reason(runs: Runs) -> str:
    if runs.status != "left_out":
        return runs.rung.reason
    stated = next((r.error for r in runs.records if r.error), None)
    # What joined has run, and why it did is no reason for it to have no time.
    why = "" if runs.rung.joined else runs.rung.reason
    return runs.left_out or stated or why or "no record of it was found"


def _wrong(record: RunRecord) -> str:
    check = record.check
    if check is None:
        return record.error or "its loss and gradients differ from the baseline's"
    return check.refusal()
