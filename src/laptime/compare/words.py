"""How numbers and facts are written in every report, so that no two of them round differently."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from laptime.compare.model import Comparison, Conditions, Scaling, VariantRow
from laptime.compare.quality import LOWER_IS_BETTER, shown
from laptime.errors import in_digits
from laptime.records import Quartiles

NONE = "–"
# Two processes that disagree by half give such an interval: its ends would be read as measured, and are not.
UNKNOWN = 1000.0
_BROKEN_OFF = "interrupted"
PARTLY = "partly failed"
Reason = TypeVar("Reason", bound=Hashable)
# Percent of a loss by which nobody would call it better or worse: what rounding leaves of one training done twice.
_SAME = 0.001


def clean(text: str) -> str:
    """Replaces what can't be printed: control sequences reach neither a terminal nor XML."""
    return "".join(c if c.isprintable() else " " for c in text)


def seconds(value: float | None) -> str:
    """Three digits that mean something: 85.2, 0.0450, 1,234."""
    if value is None:
        return NONE
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:#.3g}" if value else "0"


def milliseconds(value: float | None) -> str:
    """Three digits that mean something: 142, 28.4, 0.271; what is below a thousandth is 0."""
    if value is None:
        return NONE
    return "0" if abs(value) < 0.001 else f"{value:.3f}" if abs(value) < 1 else seconds(value)


def quartiles(value: Quartiles) -> str:
    """A quarter and three quarters of the steps, beside the median: 27.9–29.4."""
    return span(value.low, value.high, milliseconds)


def ratio(value: float | None, unit: str = "x") -> str:
    """6.80x, 12.3x, 140x."""
    if value is None:
        return NONE
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}{unit}"


def bare_ratio(value: float | None) -> str:
    """A ratio inside an interval, where the unit stands before it."""
    return ratio(value, "")


def count(value: float | None) -> str:
    return NONE if value is None else in_digits(value)


def mebibytes(value: float | None) -> str:
    """One digit behind the point below 100."""
    return NONE if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value * 100:.1f} %"


def of_ceiling(value: float | None) -> str:
    """Whole percent; below one only that it is less."""
    if value is None:
        return NONE
    return "< 1 %" if 0.0 < value < 0.01 else f"{value * 100:.0f} %"


def points(value: float | None) -> str:
    """Percentage points with their sign; the true minus sign is as wide as the plus."""
    if value is None:
        return NONE
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def wide(low: float, high: float) -> bool:
    """Whether an interval of a ratio or of a time is so wide that its ends mean nothing, as two rounds may give it."""
    return high > low * UNKNOWN


def span(low: float | None, high: float | None, write: Callable[[float | None], str]) -> str:
    """An interval; `n=1` where there is none, and `unknown` where it is so wide that its ends mean nothing."""
    if low is None or high is None:
        return "n=1"
    if write is not points and wide(low, high):
        return "unknown"
    between = " to " if write is points else "–"
    return f"{write(low)}{between}{write(high)}"


def time_span(row: VariantRow) -> str:
    return span(row.epoch_s_low, row.epoch_s_high, seconds)


def speedup_span(row: VariantRow) -> str:
    found = span(row.speedup_low, row.speedup_high, bare_ratio)
    return f"{found} by turns" if row.by_turns else found


def contribution_span(row: VariantRow) -> str:
    return span(row.contribution_low, row.contribution_high, bare_ratio)


def standing(row: VariantRow, comparison: Comparison) -> str:
    """What became of a variant, in a word or two."""
    if row.status == "failed" and (row.error or "").startswith(_BROKEN_OFF):
        return _BROKEN_OFF
    if row.status != "done":
        return row.status.replace("_", " ")
    if row.variant == comparison.baseline:
        return "baseline"
    if row.epoch_s is None:
        return "no time"
    if row.verdict == "worse":
        return "worse"
    return _place(row, comparison)


def _place(row: VariantRow, comparison: Comparison) -> str:
    best = comparison.headline("fastest")
    if best is not None and best.variant == row.variant:
        return "fastest"
    # A rung is slower than what it was built on, a variant of no ladder than the baseline; what is decided by no trial
    # (the optimized one, say) is slower where the baseline is faster, whatever it was built on.
    beside_baseline = (row.speedup, row.speedup_high)
    sides = [(row.contribution, row.contribution_high) if row.contribution else beside_baseline]
    sides += [beside_baseline] if row.joined is None else []
    looks_slower = [high for point, high in sides if point and point < 1]
    if any(high is None or high < 1 for high in looks_slower):
        return "slower"
    undecided = "unclear" if looks_slower else "done"
    return {True: "joined", False: "not joined", None: undecided}[row.joined]


def quality_cell(row: VariantRow, comparison: Comparison) -> tuple[str, str]:
    """The quality and what is said of it: (`74.0 %`, `+7.8 pp better`), (`0.52`, `4.0 % worse`)."""
    if row.quality is None:
        return NONE, ""
    value = shown(row.quality, comparison.conditions.quality)
    if row.variant == comparison.baseline:
        return value, "baseline"
    if row.quality_diff_points is None:
        return value, row.verdict
    if comparison.conditions.quality not in LOWER_IS_BETTER:
        return value, f"{points(row.quality_diff_points)} pp {row.verdict}"
    said = difference(row.quality_diff_points, comparison.conditions.quality)
    return value, said if row.verdict in said else f"{said}, {row.verdict}"


def difference(value: float | None, quality: str) -> str:
    """By how much a quality is better: `+7.8 pp`; a loss in words, since a minus there reads as less loss.

    Of a loss what one digit would show as none has one that means something: `0.02 % better`; below `_SAME` it is the
    same.
    """
    if quality not in LOWER_IS_BETTER:
        return f"{points(value)} pp"
    if value is not None and abs(value) < _SAME:
        return "the same"
    size = NONE if value is None else f"{abs(value):.1f}" if abs(value) >= 0.05 else f"{abs(value):.1g}"
    return f"{size} % {'worse' if (value or 0) < 0 else 'better'}"


def difference_span(value: float | None, low: float | None, high: float | None, quality: str) -> str:
    """A difference with its interval, whose signs are those of the word: `5.0 % worse, +4.0 to +6.0`."""
    ends = (low, high)
    if quality in LOWER_IS_BETTER and (value or 0) < 0 and low is not None and high is not None:
        ends = (-high, -low)
    return f"{difference(value, quality)}, {span(*ends, points)}"


def strict_cell(row: VariantRow) -> str:
    """A detector's stricter figure, which stands beside its quality: `0.5:0.95: 12.3 %`; else nothing."""
    return "" if row.quality_strict is None else f"0.5:0.95: {percent(row.quality_strict)}"


def troubles(comparison: Comparison) -> list[tuple[tuple[str, ...], str, str]]:
    """Variants without a time, or with a failed process: (variants, standing, why).

    Those of one reason stand together: a short ladder leaves a dozen out for the same.
    """
    found = []
    for row in comparison.rows:
        if row.status != "left_out" and row.error:
            partly = row.status == "done" and row.epoch_s is not None
            said = standing(row, comparison)
            why = "it has no time" if row.error == said else row.error
            found.append((row.variant, (PARTLY if partly else said, why)))
    failed = [(names, said, why) for names, (said, why) in by_reason(found)]
    return [*failed, *((names, "left out", why) for names, why in left_out(comparison) if why)]


def left_out(comparison: Comparison) -> list[tuple[tuple[str, ...], str]]:
    """The variants that were left out, by reason: (variants, why); in the order of the first of each."""
    return by_reason([(r.variant, r.reason) for r in comparison.rows if r.status == "left_out"])


def by_reason(found: Sequence[tuple[str, Reason]]) -> list[tuple[tuple[str, ...], Reason]]:
    """The variants of each reason."""
    by_it: dict[Reason, list[str]] = {}
    for variant, reason in found:
        by_it.setdefault(reason, []).append(variant)
    return [(tuple(names), reason) for reason, names in by_it.items()]


SCALING = ("variant", "ranks", "scaling", "samples/s", "gain", "efficiency", "against")


def scaling_cells(found: Scaling) -> tuple[str, ...]:
    """A row of the table of scaling, in the order of `SCALING`."""
    against = clean(found.against) + ("" if found.same_list else " (the fastest on one rank, another list)")
    rate = (count(found.samples_per_s), ratio(found.gain), percent(found.efficiency))
    return (clean(found.variant), str(found.ranks), found.kind, *rate, against)


def day(at: float | None) -> str:
    """The day in UTC, as 21 Nov 2026; month names are not the locale's."""
    if at is None:
        return ""
    months = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    when = datetime.fromtimestamp(at, UTC)
    return f"{when.day} {months[when.month - 1]} {when.year}"


def conditions(given: Conditions, n: int) -> str:
    """One sentence with everything that the times depend on.

    Args:
        given: the conditions.
        n: processes of the headline, 0 where there is none.
    """
    where = [given.machine or "an unnamed machine", plural(given.cores, "core"), _torch(given.torch)]
    train, test = _taken(given.train_count, given.train_there), _taken(given.test_count, given.test_there)
    what = [given.data, f"{train} training and {test} test samples" if given.train_count else ""]
    how = [
        plural(given.epochs, "counted epoch") + " a process" if given.epochs else "",
        plural(given.repeats, "round"),
    ]
    when = [
        f"n = {n}" if n else "",
        day(given.started_at),
        f"commit {given.commit[:10]}" if given.commit else "",
    ]
    return ", ".join(part for part in (*where, *what, *how, *when) if part) + "."


def _taken(samples: int, there: int) -> str:
    """How many samples are used, and of how many: a preset or a limit takes fewer, which is another training."""
    return f"{samples:,} of {there:,}" if there > samples else f"{samples:,}"


def _torch(version: str) -> str:
    return f"torch {version}" if version else ""


def plural(number: int, noun: str) -> str:
    """`3 rounds`, `1 round`, and nothing for none."""
    return "" if not number else f"{number:,} {noun}{'' if number == 1 else 's'}"
