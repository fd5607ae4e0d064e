"""The table of operators as reports show it: its columns, each explained in a sentence, and its rows as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from laptime.records import OperatorRow, TraceSummary

Cell = Callable[[OperatorRow, TraceSummary], str]


@dataclass(frozen=True)
class Column:
    """A column of the table of operators.

    Attributes:
        title: its head.
        unit: of its numbers; empty where it holds text.
        sentence: what it says, for a reader who sees it for the first time.
        cell: writes it for one row.
        needs: left out where the summary misses this (`shapes`, `stacks`, `regions`), or where there is no `device`.
    """

    title: str
    unit: str
    sentence: str
    cell: Cell
    needs: str = ""


def _share(row: OperatorRow, summary: TraceSummary) -> str:
    spent = row.device_self_ms if summary.device == "cuda" else row.self_ms
    return f"{spent / summary.step_mean_ms:.1%}"


COLUMNS: tuple[Column, ...] = (
    Column("Operator", "", "The operator that does the work itself.", lambda row, _: row.name),
    Column(
        "Called through",
        "",
        "Operators around it that only pass the call on; their time is counted in this row, not in rows of their own.",
        lambda row, _: " > ".join(row.chain),
    ),
    Column("Input shapes", "", "Shapes of its inputs; each set has a row.", lambda row, _: row.shapes, "shapes"),
    Column("Calls", "a step", "How often one step calls it, on average.", lambda row, _: f"{row.calls:.3g}"),
    Column(
        "Device",
        "ms a step",
        "Time of the kernels that it launched itself, on the device.",
        lambda row, _: f"{row.device_self_ms:.3f}",
        "device",
    ),
    Column(
        "Self",
        "ms a step",
        "Time on the host in the operator itself, without the operators that it calls; these times add up.",
        lambda row, _: f"{row.self_ms:.3f}",
    ),
    Column(
        "Share",
        "of the step",
        "Its own time over the mean step: of the device where the step ran on one, else of the host.",
        _share,
    ),
    Column(
        "Total",
        "ms a step",
        "Time on the host with all that it calls; totals of an operator and of what it calls count twice.",
        lambda row, _: f"{row.total_ms:.3f}",
    ),
    Column("Region", "", "The part of the step that most of its calls lie in.", lambda row, _: row.region, "regions"),
    Column("Line", "", "Your line of code that most of its calls come from.", lambda row, _: row.source, "stacks"),
)


def columns(summary: TraceSummary) -> tuple[Column, ...]:
    """The columns that a trace can fill."""
    absent = {*summary.missing, *(("device",) if summary.device == "cpu" else ())}
    return tuple(column for column in COLUMNS if column.needs not in absent)


def operator_rows(summary: TraceSummary, most: int = 30) -> list[tuple[str, ...]]:
    """The operators that take longest by themselves, as text under `columns(summary)`."""
    shown = columns(summary)
    return [tuple(column.cell(row, summary) for column in shown) for row in summary.operators[:most]]
