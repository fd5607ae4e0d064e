"""The operators of a profiled step, from traces: those that take the time, and what each column says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from laptime.compare import words
from laptime.compare.anatomy import OperatorTable
from laptime.compare.model import Comparison
from laptime.records import OperatorRow, TraceSummary

TITLE = "Operators"
SHOWN = 15
# Named and no link, since the page reaches nothing.
WHOLE = (
    "All of a variant’s recorded steps are in its profile/trace.json.gz, in its folder and among its run’s artifacts: "
    "open it in ui.perfetto.dev or chrome://tracing."
)
# A wrapper whose own time is below this share of its total only passes the call on.
_PASSES_ON = 0.005

# Title and sentence of each column; the device's stands only where there is one.
COLUMNS = (
    (
        "operator",
        "What ran; below it the operators above that only passed the call on, so that the time is all its own.",
    ),
    ("self ms", "Time in the operator itself on the host, without what it called: rows can be added up."),
    ("share", "Self time over the step; on a GPU the device's own time over the step."),
    ("device ms", "Time of the kernels that it launched itself, on the device's clock."),
    ("calls", "How often it ran in a step."),
    ("total ms", "Time with all that it called: rows overlap, so totals can't be added up."),
    ("input shapes", "The sizes of its inputs; the same operator on other shapes has a row of its own."),
)


def with_operators(comparison: Comparison, traces: Mapping[str, TraceSummary]) -> Comparison:
    """Gives a comparison a table for each traced variant: the baseline's, the fastest's, then the others'."""
    best = comparison.headline("fastest")
    order = {best.variant if best and best.variant else "": 1, comparison.baseline: 0}
    names = [r.variant for r in comparison.rows if r.variant in traces and traces[r.variant].operators]
    names.sort(key=lambda n: order.get(n, 2))
    tables = tuple(_table(n, traces[n], order.get(n, 2)) for n in names)
    return comparison.model_copy(update={"operators": tables})


def _table(variant: str, trace: TraceSummary, place: int) -> OperatorTable:
    rows = sorted(_spending(trace.operators), key=lambda r: -own_ms(r, trace.device))
    left = rows[SHOWN:]
    return OperatorTable(
        variant=variant,
        role="baseline" if place == 0 else "fastest" if place == 1 else "",
        device=trace.device,
        steps=trace.steps,
        step_ms=trace.step_mean_ms,
        rows=tuple(rows[:SHOWN]),
        left=len(left),
        left_ms=sum(own_ms(r, trace.device) for r in left),
    )


def own_ms(row: OperatorRow, device: str) -> float:
    """The time that a row is ranked by: on a GPU the device's, elsewhere the host's."""
    return row.device_self_ms if device == "cuda" else row.self_ms


def _spending(rows: Sequence[OperatorRow]) -> list[OperatorRow]:
    """Leaves out wrappers that stand in the chain of another row and spend nothing themselves."""
    above = {name for r in rows for name in r.chain}
    return [
        r
        for r in rows
        if r.name not in above or r.device_self_ms > 0 or r.self_ms > _PASSES_ON * max(r.total_ms, r.self_ms)
    ]


def share(row: OperatorRow, table: OperatorTable) -> float | None:
    """Of the recorded step."""
    return own_ms(row, table.device) / table.step_ms if table.step_ms > 0 else None


def summary(table: OperatorTable) -> str:
    """What a table shows, in a sentence."""
    known = words.plural(table.steps, "recorded step")
    rest = f"; {table.left} more operators take {words.milliseconds(table.left_ms)} ms together" if table.left else ""
    return f"{words.milliseconds(table.step_ms)} ms in the mean step{f' of {known}' if known else ''}{rest}."


def cells(row: OperatorRow, table: OperatorTable) -> list[str]:
    """The figures of a row: the columns between the operator and its shapes."""
    device = [words.milliseconds(row.device_self_ms)] if table.device == "cuda" else []
    return [
        words.milliseconds(row.self_ms),
        words.percent(share(row, table)),
        *device,
        f"{row.calls:,.0f}" if row.calls >= 1 else f"{row.calls:.2g}",
        words.milliseconds(row.total_ms),
    ]


def columns(tables: Sequence[OperatorTable]) -> list[tuple[str, str]]:
    """The columns that any of the tables has, with their sentences."""
    device = any(t.device == "cuda" for t in tables)
    return [c for c in COLUMNS if device or c[0] != "device ms"]
