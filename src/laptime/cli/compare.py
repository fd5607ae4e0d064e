"""`laptime compare RUN…`: the comparison of any runs, by ladder folders, record files or MLflow run ids."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli.fetched import fetched_run, of_run
from laptime.errors import UsageError, shorten

if TYPE_CHECKING:
    from laptime.compare.model import Comparison
    from laptime.compare.sides import Sides
    from laptime.records import LadderRecord, RunRecord

    Loaded = tuple[str, LadderRecord | None, list[RunRecord], Sides]


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Ladder folders, record.json files or MLflow run ids.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report, its data and plots.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compares variants: speed-ups with intervals, quality beside the baseline's, what each rung brought."""
    comparison, ladder, records = compare_runs(runs)
    if as_json:
        sys.stdout.write(comparison.model_dump_json(by_alias=True, indent=1) + "\n")
    else:
        _print(comparison)
    if out is not None:
        from laptime.compare.write import write_comparison
        from laptime.places import expanded

        out = expanded(str(out))  # a shell leaves the ~ of `--out=~/report` as it is

        files = write_comparison(comparison, ladder, records, out)
        sys.stderr.write(f"The report is in {files['comparison.html']}.\n")


def compare_runs(runs: list[str]) -> tuple[Comparison, LadderRecord | None, list[RunRecord]]:
    """Loads what is named and compares it; a single ladder is compared as it was planned.

    Raises:
        UsageError: a name is neither a path nor a run id, or nothing was found.
        DataError: a ladder or record can't be read.
        TrackingError: the tracking store refuses a run id.
    """
    from laptime.compare.comparison import compare as compare_ladder
    from laptime.compare.comparison import ladder_of, with_specs

    loaded = [_load(run) for run in _each_once(runs)]
    ladders = {ladder.id if ladder else "": ladder for _, ladder, _, _ in loaded}
    records, sides = _apart(loaded)
    only = next(iter(ladders.values()))
    if len(ladders) == 1 and only is not None:
        found = compare_ladder(only, records, sides.traces, sides.advice)
        return sides.warned(found), only, records
    if not records:
        raise UsageError(f"no record.json below {shorten(' '.join(runs))}: give a ladder's folder or record files.")
    named = with_specs(records)
    ladder = ladder_of(named)
    return sides.warned(compare_ladder(ladder, named, sides.traces, sides.advice)), ladder, named


def _each_once(runs: list[str]) -> list[str]:
    """What is named, by its parts where it is a folder above ladders; nothing twice, however it is named."""
    from laptime.compare.load import places

    found: dict[str, str] = {}
    for run in runs:
        parts = places(Path(run)) if Path(run).exists() else []
        found |= {str(part.resolve()): str(part) for part in parts} if parts else {run: run}
    return [run for whole, run in found.items() if not any(str(above) in found for above in Path(whole).parents)]


def _load(run: str) -> Loaded:
    from laptime.compare.load import load
    from laptime.compare.sides import load_sides

    path = Path(run)
    if path.exists():
        return (path.resolve().name, *load(path), load_sides(path))
    if not re.fullmatch(r"[0-9a-f]{32}", run):
        raise UsageError(
            f"{shorten(run)!r} is neither a path nor an MLflow run id: give a ladder's folder (it holds "
            "ladder.json), a record.json, or the 32 digits of a run."
        )
    return _fetch(run)


def _fetch(run: str) -> Loaded:
    from laptime.compare.load import load
    from laptime.compare.sides import load_sides

    with fetched_run(run) as folder:
        sides = load_sides(folder)
        sides.unreadable = [of_run(text, folder, run) for text in sides.unreadable]
        return (run[:8], *load(folder), sides)


def _apart(loaded: list[Loaded]) -> tuple[list[RunRecord], Sides]:
    """Keeps variants of several ladders apart: `variant @ ladder`, in rounds that no other ladder shares.

    Rounds of two ladders ran at different times, so they must not be paired. Loose records keep their names:
    equal ones are processes of one variant.
    """
    from laptime.compare.sides import Sides

    ladders = {ladder.id: name for name, ladder, _, _ in loaded if ladder is not None}
    shared = Counter(ladders.values())
    found, beside = [], Sides()
    for place, (name, ladder, records, sides) in enumerate(loaded):
        if len(ladders) < 2 or ladder is None:
            found += records
            beside.add(sides)
            continue
        called = name if shared[name] == 1 else ladder.id
        found += [_rename(r, called, place) for r in records]
        beside.add(sides.renamed({r.spec.variant: _named(r.spec.variant, called) for r in records if r.spec}))
    return found, beside


def _named(variant: str, ladder: str) -> str:
    return f"{variant} @ {ladder}"


def _rename(record: RunRecord, ladder: str, place: int) -> RunRecord:
    if record.spec is None:
        return record
    apart = {"variant": _named(record.spec.variant, ladder), "repeat": record.spec.repeat + 1000 * place}
    return record.model_copy(update={"spec": record.spec.model_copy(update=apart)})


def _print(comparison: Comparison) -> None:
    from laptime.compare.terminal import print_comparison

    print_comparison(comparison)
