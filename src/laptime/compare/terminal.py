"""The comparison as a table for the terminal; where it is narrow, intervals move below their figures."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from laptime.compare import ablation, advising, payback, searching, words
from laptime.compare.model import Comparison, VariantRow
from laptime.compare.quality import name_of
from laptime.records import SearchRecord

STYLES = {"fastest": "bold green", "worse": "red", "failed": "red", "wrong": "bold red", "left out": "yellow"}


@dataclass(frozen=True)
class Layout:
    """How much room the table takes.

    Attributes:
        stacked: intervals stand below their figures.
        costs: samples/s and memory have columns.
        name: characters of a variant's name on a line.
    """

    stacked: bool
    costs: bool
    name: int


# The first that fits is taken, the last one whatever the width.
LAYOUTS = (
    Layout(False, True, 40),
    Layout(False, True, 20),
    Layout(True, True, 20),
    Layout(True, False, 18),
    Layout(True, False, 14),
)


_LOG_WIDTH = 130


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Prints table, what was left out or failed, cautions and headlines, as wide as the console.

    A pipe or a log has no width of its own and gets the whole table.
    """
    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_LOG_WIDTH)
    console.print(to_terminal(comparison, console.width))


def to_terminal(comparison: Comparison, width: int) -> RenderableType:
    """Builds what is printed; names and errors are text, never markup or control sequences."""
    given = comparison.conditions
    parts: list[RenderableType] = []
    if not given.real_data:
        notice = given.data_notice or "the data is a generated stand-in."
        parts += [_text(notice, "bold yellow"), Text()]
    parts += [_fitting(comparison, width), Text()]
    if comparison.scaling:
        parts += [_scaling(comparison), Text()]
    if comparison.parts:
        parts += [_text(ablation.TITLE, "bold"), _worths(comparison), Text()]
    if comparison.search is not None:
        parts += [_text(searching.TITLE, "bold"), *_searched(comparison.search), Text()]
    told = [
        Text.assemble(
            (words.clean(", ".join(variants)), "bold"),
            " ",
            (standing, STYLES.get(standing, "")),
            f": {words.clean(why)}",
        )
        for variants, standing, why in words.troubles(comparison)
    ]
    told += [_text(f"{variant} {text}", "") for variant, text in payback.sentences(comparison)]
    told += [_text(text, "yellow") for text in comparison.cautions]
    parts += [*told, Text()] if told else []
    parts += [_text(h.sentence, "bold" if h.kind == "fastest" else "") for h in comparison.told]
    parts.append(_text(words.conditions(given, comparison.processes), "dim"))
    verified = advising.verified(comparison)
    parts += [Text(), _text("Verified advice", "bold"), *(_text(text, "") for text in verified)] if verified else []
    following = advising.next_step(comparison)
    parts += [Text(), _text(following, "bold")] if following else []
    return Group(*parts)


def _scaling(comparison: Comparison) -> Table:
    table = Table(title="Scaling", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in words.SCALING:
        table.add_column(name, overflow="fold")
    for found in comparison.scaling:
        table.add_row(*map(Text, words.scaling_cells(found)))
    return table


def _fitting(comparison: Comparison, width: int) -> Table:
    endless = Console(width=10_000)
    tables = (_table(comparison, layout) for layout in LAYOUTS[:-1])
    fitting = (t for t in tables if endless.measure(t).maximum <= width)
    return next(fitting, None) or _table(comparison, LAYOUTS[-1])


def _table(comparison: Comparison, layout: Layout) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("variant", overflow="fold")
    quality = f"test {words.clean(name_of(comparison.conditions.quality))}"
    costs = ("samples/s", "MiB") if layout.costs else ()
    for name in ("s/epoch", "speed-up", quality, *costs, "brought"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for row in comparison.tried:
        table.add_row(*_cells(row, comparison, layout))
    return table


def _worths(comparison: Comparison) -> Table:
    """What each part of the optimized variant is worth; its verdict folds where the terminal is narrow."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    header = [h.format(quality=words.clean(ablation.unit_of(comparison.conditions.quality))) for h in ablation.HEADER]
    for place, name in enumerate(header):
        table.add_column(name, justify="left" if place in (0, len(header) - 1) else "right", overflow="fold")
    for part in comparison.parts:
        style = "yellow" if part.worth in ("costs", "left") else ""
        table.add_row(*(Text(words.clean(cell), style=style) for cell in ablation.cells(part)))
    return table


def _searched(search: SearchRecord) -> list[RenderableType]:
    """What a search tried and what came of it; its verdicts fold where the terminal is narrow."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for place, name in enumerate(searching.HEADER):
        table.add_column(name, justify="right" if place in (2, 3, 4) else "left", overflow="fold")
    for move in search.moves:
        style = "bold" if move.adopted else ""
        table.add_row(*(Text(words.clean(cell), style=style) for cell in searching.cells(move)))
    return [*([table] if search.moves else []), *(_text(text, "") for text in searching.sentences(search))]


def _cells(row: VariantRow, comparison: Comparison, layout: Layout) -> list[Text]:
    standing = words.standing(row, comparison)
    (value, said), strict = words.quality_cell(row, comparison), words.strict_cell(row)
    timed, base = row.epoch_s is not None, row.variant == comparison.baseline
    compared = row.speedup is not None and not base
    name = "\n".join(textwrap.wrap(words.clean(row.variant), layout.name)) or words.NONE
    cells = [
        Text(name, style="bold" if standing == "fastest" else ""),
        _beside(words.seconds(row.epoch_s), (words.time_span(row) if timed else "",), layout),
        _beside(words.ratio(row.speedup), (words.speedup_span(row) if compared else "",), layout),
        _beside(value, (f"({strict})" if strict else "", "" if base else said), layout),
    ]
    costs = (words.count(row.samples_per_s), words.count(row.peak_memory_mib)) if layout.costs else ()
    cells += [Text(text) for text in (*costs, words.ratio(row.contribution))]
    return [*cells, Text(standing, style=STYLES.get(standing, ""))]


def _beside(value: str, others: Sequence[str], layout: Layout) -> Text:
    """A value with what belongs to it, beside or below; what is empty takes no room."""
    between = "\n" if layout.stacked else " "
    return Text.assemble(value, *((between + other, "dim") for other in others if other))


def _text(text: str, style: str) -> Text:
    return Text(words.clean(text), style=style)
