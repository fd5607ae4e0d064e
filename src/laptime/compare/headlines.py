"""The figures that people quote: the fastest variant of each of some kinds that is not worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laptime.compare import words
from laptime.compare.model import Comparison, Conditions, Headline, HeadlineKind, VariantRow
from laptime.compare.quality import name_of, shown
from laptime.compare.rows import OTHER

Filter = Callable[[VariantRow], bool]

KINDS: tuple[tuple[HeadlineKind, str, Filter], ...] = (
    ("fastest", "Fastest", lambda _: True),
    ("without_dead_taps", "Fastest without dead taps", lambda row: "dead-taps" not in row.names),
    (
        "exact_and_numeric",
        "Fastest with exact and numeric changes alone",
        lambda row: bool(row.classes) and set(row.classes) <= {"exact", "numeric"},
    ),
)
_SHOWN = "Fastest with quality shown to be kept"


def headlines(rows: Sequence[VariantRow], baseline: str, conditions: Conditions) -> tuple[Headline, ...]:
    """Finds the headlines; none is a worse variant, a slower one, or a peer (`peer-...`), which is not ours.

    Where no variant is faster at all there is one headline, which says so. Where the fastest may be worse, the second
    one is of those that are shown not to be.
    """
    base = next(r for r in rows if r.variant == baseline)
    ours = _ours(rows, baseline)
    able = [r for r in ours if (r.speedup or 0.0) > 1 and r.verdict != "worse"]
    nothing = ""
    if not ours:
        nothing = f"Only {baseline} was trained, so there is nothing to compare it with."
    elif base.epoch_s is not None and {r.verdict_reason for r in ours if r.epoch_s is not None} == {OTHER}:
        nothing = f"No speed-up over {baseline} is given: each of the others trains another workload or amount of data."
    if nothing:
        return (Headline(kind="fastest", title=KINDS[0][1], sentence=nothing, real_data=conditions.real_data),)
    first, *more = (_headline(kind, title, (base, list(filter(fits, able))), conditions) for kind, title, fits in KINDS)
    if first.variant is None:
        return (first,)
    told = (_shortened(h) if h.variant and h.variant == first.variant else h for h in more)
    return (first, *_kept(first, (base, able), conditions), *told)


def _kept(first: Headline, found: tuple[VariantRow, list[VariantRow]], conditions: Conditions) -> tuple[Headline, ...]:
    """The fastest variant that is shown to keep quality, where the first headline is of one that may lose some."""
    if first.verdict != "unclear":
        return ()
    base, rows = found
    best = _headline("quality_kept", _SHOWN, (base, [r for r in rows if r.verdict in ("kept", "better")]), conditions)
    if best.variant is None:
        open_yet = f"{_SHOWN}: none that is faster than {base.variant}; more rounds would tell (--repeats)."
        best = best.model_copy(update={"sentence": open_yet})
    return (best,)


def _shortened(headline: Headline) -> Headline:
    """Of the variant that the first headline has described already."""
    return headline.model_copy(update={"sentence": f"{headline.title}: {headline.variant} too."})


def _headline(
    kind: HeadlineKind, title: str, found: tuple[VariantRow, list[VariantRow]], conditions: Conditions
) -> Headline:
    base, rows = found
    real = conditions.real_data
    if base.epoch_s is None:
        sentence = f"{title}: no speed-up can be given, since {base.variant} has no counted epoch."
        return Headline(kind=kind, title=title, sentence=sentence, real_data=real)
    best = max(rows, key=lambda r: r.speedup or 0.0, default=None)
    if best is None or best.speedup is None:
        which = "no variant" if kind == "fastest" else "no variant of this kind"
        sentence = f"{title}: {which} is faster than {base.variant} and not worse."
        return Headline(kind=kind, title=title, sentence=sentence, real_data=real)
    return Headline(
        kind=kind,
        title=title,
        sentence=_sentence(title, base, best, conditions),
        variant=best.variant,
        speedup=best.speedup,
        low=best.speedup_low,
        high=best.speedup_high,
        n=best.speedup_n,
        verdict=best.verdict,
        real_data=real,
    )


def _sentence(title: str, base: VariantRow, best: VariantRow, conditions: Conditions) -> str:
    text = (
        f"{title}: {best.variant} trains {words.ratio(best.speedup)} as fast as {base.variant}{together(best)} "
        f"({certainty(best)}), {'in the rounds ' if best.by_turns else ''}"
        f"{words.seconds(best.epoch_s)} s an epoch instead of {words.seconds(base.epoch_s)} s"
    )
    broken = f"; not all of it ended: {best.error.rstrip('.')}" if best.error else ""
    return f"{text}; {quality_phrase(base, best, conditions.quality)}{broken}."


def together(row: VariantRow) -> str:
    """On how many ranks a variant trains, where these are several."""
    return f" on {row.ranks} ranks" if row.ranks > 1 else ""


def certainty(row: VariantRow) -> str:
    """The interval of a variant's speed-up in words, and that a gain is not shown where it is not."""
    if row.speedup_low is None:
        certain = "n = 1, so no interval"
    else:
        span = words.span(row.speedup_low, row.speedup_high, words.bare_ratio)
        pairs = " pairs by turns, since the rounds left it open" if row.by_turns else ""
        certain = f"95 % interval {span.replace('–', ' to ')}, n = {row.speedup_n}{pairs}"
    return certain if (row.speedup_low or row.speedup or 0) > 1 else f"{certain}; a gain is not shown"


def open_yet(found: Comparison) -> tuple[str, ...]:
    """The variants that headlines name, whose intervals leave open whether they are faster than the baseline.

    Where none looks faster, what comes nearest to it.
    """
    rows = {row.variant: row for row in found.rows}
    named = dict.fromkeys(h.variant for h in found.headlines if h.variant)
    able = [r for r in _ours(found.rows, found.baseline) if r.verdict != "worse"]
    nearest = sorted(able, key=lambda r: r.speedup or 0.0)[-1:]
    return tuple(r.variant for r in ([rows[v] for v in named] or nearest) if _is_open(r))


def _is_open(row: VariantRow) -> bool:
    return row.speedup_low is not None and row.speedup_high is not None and row.speedup_low <= 1 < row.speedup_high


def _ours(rows: Sequence[VariantRow], baseline: str) -> list[VariantRow]:
    return [r for r in rows if r.variant != baseline and not r.variant.startswith("peer-")]


def quality_phrase(base: VariantRow, row: VariantRow, quality: str) -> str:
    """A variant's quality beside the baseline's, in words."""
    if row.quality is None or base.quality is None:
        return f"{name_of(quality)} not judged: {row.verdict_reason or 'it was not measured'}"
    values = f"{shown(row.quality, quality)} instead of {shown(base.quality, quality)}"
    if row.verdict == "not judged":
        return f"{name_of(quality)} not judged, {row.verdict_reason} ({values})"
    found = words.difference_span(row.quality_diff_points, row.quality_low_points, row.quality_high_points, quality)
    return f"{name_of(quality)} {row.verdict}, {values} ({found})"
