"""Figures of a comparison by the names under which MLflow holds them."""

from __future__ import annotations

from laptime.compare.model import Comparison, HeadlineKind, VariantRow
from laptime.compare.statistics import mean_ratio
from laptime.compare.words import wide
from laptime.records import SearchRecord


def variant_figures(row: VariantRow) -> dict[str, float]:
    """Metrics of a variant's run that only the comparison knows."""
    return _known(
        {
            "epoch_s_median": row.epoch_s,
            **_interval("epoch_s", row.epoch_s_low, row.epoch_s_high),
            "speedup": row.speedup,
            **_interval("speedup", row.speedup_low, row.speedup_high),
            "time_to_accuracy_s": row.time_to_accuracy_s,
            "mfu": row.ceiling_share,
            "break_even_epochs": row.break_even_epochs,
        }
    )


def lone_figures(row: VariantRow) -> dict[str, float]:
    """Metrics of a variant that ran alone: those that mean something without another one."""
    figures = variant_figures(row)
    return {n: figures[n] for n in ("epoch_s_median", "epoch_s_ci_low", "epoch_s_ci_high", "mfu") if n in figures}


def headline_figures(comparison: Comparison) -> dict[str, float]:
    """Metrics of the parent run: the fastest variant's, with the speed-ups that are shown apart."""
    fastest = comparison.headline("fastest")
    row = comparison.row(fastest.variant) if fastest and fastest.variant else None
    figures = variant_figures(row) if row else {}
    kinds: tuple[HeadlineKind, ...] = ("quality_kept", "without_dead_taps", "exact_and_numeric")
    for kind in kinds:
        headline = comparison.headline(kind)
        if kind == "quality_kept" and fastest and fastest.verdict in ("kept", "better"):
            headline = fastest
        if headline and headline.speedup is not None:
            figures[f"speedup_{kind}"] = headline.speedup
    return figures | _search_figures(comparison.search)


def _search_figures(search: SearchRecord | None) -> dict[str, float]:
    """What came of a search; nothing of a ladder of rungs."""
    if search is None:
        return {}
    figures = {"changes_tried": len(search.moves), "changes_kept": sum(move.adopted for move in search.moves)}
    if not search.confirmed:
        return {name: float(value) for name, value in figures.items()}
    found = mean_ratio(search.confirmed)
    return _known({**figures, "tuned_ratio": found.point, **_interval("tuned_ratio", found.low, found.high)})


def _interval(name: str, low: float | None, high: float | None) -> dict[str, float | None]:
    """The ends of an interval; none where reports say `unknown`, since a chart would show them as if they meant it."""
    if low is None or high is None or wide(low, high):
        return {}
    return {f"{name}_ci_low": low, f"{name}_ci_high": high}


def _known(figures: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if value is not None}
