"""`laptime list`: what there is, and where it last ran."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laptime.cli.options import JSON

if TYPE_CHECKING:
    from laptime.catalogue.entries import OptimizationEntry

_LOG_WIDTH = 160
# What a narrower terminal has no room for; --json has all of it.
_WHOLE, _LESS = 120, ("commit", "n", "images", "stage", "options")
KINDS = ("workloads", "optimizations", "variants")


def show(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="workloads, optimizations or variants; default: all.")
    ] = "",
    as_json: JSON = False,
) -> None:
    """Lists workloads, optimizations and variants, with classes, needs, options and where each variant last ran."""
    from laptime.errors import unknown

    if kind and kind not in KINDS:
        raise unknown("kind of list", kind, KINDS)
    rows = {name: _ROWS[name]() for name in ([kind] if kind else KINDS)}
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    _print(rows)


def _workloads() -> list[dict[str, Any]]:
    from laptime.catalogue import WORKLOADS

    return [{"name": w.name, "what": w.explanation, "presets": [p.name for p in w.presets]} for w in WORKLOADS]


def _optimizations() -> list[dict[str, Any]]:
    from laptime.catalogue import OPTIMIZATIONS

    return [
        {
            "name": o.name,
            "class": o.klass,
            "stage": o.stage,
            "devices": list(o.devices),
            "what": o.explanation,
            "probed": o.probe is not None,
            "needs": _needs(o),
            "options": [{"name": p.name, "default": p.default, "what": p.help} for p in o.options],
        }
        for o in OPTIMIZATIONS
    ]


def _needs(entry: OptimizationEntry) -> list[str]:
    """What a machine, an installation or a training must have for it; empty where any will do."""
    several = any(option.name == "ranks" for option in entry.options)
    alone = {"cpu": "a CPU", "cuda": "a GPU"}.get("".join(entry.devices))
    found = (
        "several GPUs or cores" if several else alone,
        entry.workload and f"workload {entry.workload}",
        entry.extra and f"extra {entry.extra}",
        entry.probe and "a probe's gain",
    )
    return [need for need in found if need]


def _variants() -> list[dict[str, Any]]:
    from laptime.catalogue import WORKLOADS, classes_of
    from laptime.ledger import read_ledger
    from laptime.variants import all_names, resolve

    ledger = read_ledger()
    found = []
    for workload in WORKLOADS:
        for name in all_names():
            variant, entry = resolve(name, workload=workload.name), ledger.find(workload.name, name)
            found.append(
                {
                    "workload": workload.name,
                    "name": name,
                    "optimizations": [o.text() for o in variant.optimizations],
                    "classes": list(classes_of(variant.optimizations)),
                    "last_run": entry.model_dump(mode="json") if entry else None,
                }
            )
    return found


_ROWS = {"workloads": _workloads, "optimizations": _optimizations, "variants": _variants}


def _print(rows: dict[str, list[dict[str, Any]]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    headings = {
        "workloads": ("workload", "what", "presets"),
        "optimizations": ("optimization", "class", "stage", "what", "needs", "options"),
        "variants": ("variant", "classes", "last ran on", "commit", "date", "n", "epoch", "images"),
    }
    cells = {"workloads": _workload_cells, "optimizations": _optimization_cells, "variants": _variant_cells}
    console = Console()
    if not console.is_terminal:
        console = Console(width=_LOG_WIDTH)
    for kind, entries in rows.items():
        shown = [h for h in headings[kind] if console.width >= _WHOLE or h not in _LESS]
        table = Table(title=kind, title_justify="left", box=None, pad_edge=False)
        for place, heading in enumerate(shown):
            table.add_column(heading, no_wrap=place == 0, overflow="fold")
        for entry in entries:
            row = dict(zip(headings[kind], cells[kind](entry), strict=True))
            table.add_row(*(Text(row[heading]) for heading in shown))
        console.print(table)


def _workload_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return row["name"], row["what"], ", ".join(row["presets"])


def _optimization_cells(row: dict[str, Any]) -> tuple[str, ...]:
    options = ", ".join(f"{o['name']}={o['default']}" for o in row["options"])
    return row["name"], row["class"], row["stage"], row["what"], ", ".join(row["needs"]), options


def _variant_cells(row: dict[str, Any]) -> tuple[str, ...]:
    last = row["last_run"]
    name, classes = row["name"], ", ".join(row["classes"]) or "-"
    if last is None:
        return name, classes, "never run", "", "", "", "", ""
    run = (last["machine"], last["commit"] or "", last["date"], str(last["n"]))
    return name, classes, *run, f"{last['epoch_s']:.4g} s", f"{last['samples']:,}"
