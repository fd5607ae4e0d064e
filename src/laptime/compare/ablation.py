"""What each part of the optimized variant is worth: it beside itself with one part left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from laptime.compare import words
from laptime.compare.differences import difference
from laptime.compare.model import PartWorth, Worth
from laptime.compare.quality import LOWER_IS_BETTER, has_learnt, name_of, scores_of, without_quality
from laptime.compare.rows import Context, Runs
from laptime.compare.statistics import Estimate, mean_ratio
from laptime.records import Dropped, RunRecord


def ablation(
    context: Context, dropped: Iterable[Dropped], pairs: Mapping[str, Sequence[float]] | None = None
) -> tuple[PartWorth, ...]:
    """The worth of each part that was left out in turn, the most valuable first; then those that left.

    Args:
        context: the ladder's processes.
        dropped: the parts that left.
        pairs: ratios of processes that trained by turns, by the variant without the part: they count, not the rounds,
            where there are any.
    """
    beside = pairs or {}
    found = [
        _part(runs, context, whole, beside.get(runs.rung.variant, ()))
        for runs in context.runs.values()
        if (whole := _whole(runs, context))
    ]
    found.sort(key=lambda p: -(p.ratio or 0.0))
    return (*found, *(_left(d) for d in dropped))


def _whole(runs: Runs, context: Context) -> Runs | None:
    """The variant that another is one thing less than, by their names."""
    name, without, _ = runs.rung.variant.rpartition("-without-")
    return context.runs.get(name) if without else None


def _part(runs: Runs, context: Context, whole: Runs, pairs: Sequence[float]) -> PartWorth:
    part = runs.rung.variant.rpartition("-without-")[2]
    laps, beside = runs.laps, whole.laps
    if laps is None or beside is None:
        why = runs.error if laps is None else "the optimized variant came to no time"
        needed = beside is not None and any(r.status in ("failed", "wrong") and not _cut_off(r) for r in runs.records)
        worth: Worth = "needed" if laps is None and needed else "not measured"
        return PartWorth(part=part, variant=runs.rung.variant, worth=worth, reason=why or "it did not run")
    ratio = mean_ratio(pairs) if pairs else context.bootstrap.ratio(laps, beside)
    points, noise = _quality(runs, context, whole)
    lost = _numberless(runs, context, whole)
    return PartWorth(
        part=part,
        variant=runs.rung.variant,
        epoch_s=context.bootstrap.time(laps).point,
        ratio=ratio.point,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        n=ratio.n,
        by_turns=bool(pairs),
        quality_points=points,
        quality_noise_points=noise,
        worth="earns its place" if lost else _worth(ratio, points, noise),
        reason=lost,
    )


def _numberless(runs: Runs, context: Context, whole: Runs) -> str:
    """Says where trainings without a part come to no quality, and those with it do; empty where that is not so."""
    quality, base = context.quality, context.baseline_scores
    without, beside = (sum(without_quality(r, quality) for r in side.records) for side in (runs, whole))
    if not without or beside or base is None or not has_learnt(base.mean, quality, context.rules):
        return ""
    return f"without it {without} of {len(runs.records)} trainings came to no {name_of(quality)}"


def _cut_off(record: RunRecord) -> bool:
    """Whether somebody broke a process off, which says nothing of what it trained."""
    return (record.error or "").startswith("interrupted")


def _quality(runs: Runs, context: Context, whole: Runs) -> tuple[float | None, float | None]:
    own, beside = scores_of(runs.done, context.quality), scores_of(whole.done, context.quality)
    base = context.baseline_scores
    if own is None or beside is None or base is None or not has_learnt(base.mean, context.quality, context.rules):
        return None, None
    return difference(beside, own, context.rules.test_count)


def _worth(ratio: Estimate, points: float | None, noise: float | None) -> Worth:
    """By the interval of the time; a part that costs time may earn its place by the quality that falls without it.

    What saves time and costs quality is for whoever reads both figures to weigh, unless the time is not shown.
    """
    if ratio.low is not None and ratio.low > 1:
        return "earns its place"
    if points is not None and noise is not None and points < -noise:
        return "earns its place"
    if (ratio.high is not None and ratio.high < 1) or (points is not None and noise is not None and points > noise):
        return "costs"
    return "within noise"


def _left(dropped: Dropped) -> PartWorth:
    ratio = dropped.without_s / dropped.with_s
    return PartWorth(
        part=dropped.name,
        variant="",
        epoch_s=dropped.without_s,
        ratio=ratio,
        n=dropped.n,
        worth="left",
        reason=dropped.reason,
    )


# How the table is headed in every report.
TITLE = "What each part is worth"
LEAD = (
    "The optimized variant without one part at a time. Times as long: seconds without the part over seconds with all, "
    "from n pairs of processes that took turns, an epoch of one and then of the other, where it says so, and else from "
    "the rounds of the ladder. A part that left was not shown to make the variant faster; it is in no figure above."
)
HEADER = ("left out", "s/epoch", "times as long", "{quality}", "verdict")


def unit_of(quality: str) -> str:
    """How the column of quality is headed: the metric and what its figures are."""
    return f"{name_of(quality)}, {'% better' if quality in LOWER_IS_BETTER else 'points'}"


def cells(part: PartWorth) -> list[str]:
    """A part as the words of a table's row."""
    ratio = words.ratio(part.ratio)
    if part.ratio is not None and part.worth != "left":
        turns = f", n = {part.n} by turns" if part.by_turns else ""
        ratio += f" ({words.span(part.ratio_low, part.ratio_high, words.bare_ratio)}{turns})"
    points = words.points(part.quality_points)
    if part.quality_noise_points is not None:
        points += f" ± {part.quality_noise_points:.1f}"
    verdict = f"{part.worth}: {part.reason}" if part.reason else part.worth
    return [part.part, words.seconds(part.epoch_s), ratio, points, verdict]
