"""After how many epochs compilation has paid for itself."""

from __future__ import annotations

import math
from typing import Any

from laptime.catalogue import OPTIMIZATIONS
from laptime.compare.model import Comparison, VariantRow
from laptime.compare.rows import Context, Runs
from laptime.compare.statistics import epoch_seconds

_COMPILERS = tuple(o.name for o in OPTIMIZATIONS if o.stage == "compile")


def with_compilation(row: VariantRow, context: Context) -> VariantRow:
    """A row with what its compilation cost: seconds, break-even in epochs, and what the compiler did.

    The longest of the processes counts: later ones find the compiler's cache on disk filled by the first.
    """
    runs = context.runs[row.variant]
    done = [r for r in runs.records if r.compile_s is not None]
    if not done:
        return row
    longest = max(done, key=lambda r: r.compile_s or 0.0)
    fields: dict[str, Any] = {"compile_s": longest.compile_s, "compilation": longest.compilation}
    beside = _uncompiled(runs, context)
    if beside is not None and beside.laps is not None and row.epoch_s is not None:
        saved_s = epoch_seconds(beside.laps) - row.epoch_s
        fields["break_even_on"] = beside.rung.variant
        if saved_s > 0:
            fields["break_even_epochs"] = math.ceil((longest.compile_s or 0.0) / saved_s)
    return row.model_copy(update=fields)


def _uncompiled(runs: Runs, context: Context) -> Runs | None:
    """What a variant's epochs are held against: the rung it stands on, or itself without compile."""
    without = (f"{runs.rung.variant}-without-{name}" for name in _COMPILERS)
    found = (context.runs.get(name) for name in (runs.rung.on or "", *without))
    return next((r for r in found if r and all(o.name not in _COMPILERS for o in r.rung.optimizations)), None)


def pays(row: VariantRow) -> str:
    """When compilation pays, in words; empty where nothing is known."""
    if row.compile_s is None or row.break_even_on is None or row.epoch_s is None:
        return ""
    if row.break_even_epochs is None:
        return "never pays"
    return f"pays after {row.break_even_epochs:,} {'epoch' if row.break_even_epochs == 1 else 'epochs'}"


def sentences(comparison: Comparison) -> list[tuple[str, str]]:
    """For each variant that compiled: its name, and what that cost and when it pays."""
    return [(row.variant, sentence(row)) for row in comparison.rows if row.compile_s is not None]


def sentence(row: VariantRow) -> str:
    """What compiling cost a variant and when it pays, in words."""
    text = f"compiled in {row.compile_s or 0.0:.1f} s"
    if pays(row):
        text += f", {pays(row)} (beside {row.break_even_on})"
    found = row.compilation
    if found is not None:
        done = f"graphs {found.graphs}, breaks {found.graph_breaks}, recompilations {found.recompiles}"
        text += f"; {done}, from the cache on disk {found.cache_hits}"
    return text
