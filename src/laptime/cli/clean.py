"""`laptime clean`: what may be deleted, and how much it frees."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from laptime.cli.options import JSON

KINDS = ("runs", "data", "all")


def clean(
    what: Annotated[str, typer.Argument(help="runs, data or all.")] = "all",
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it the command only tells.")] = False,
    as_json: JSON = False,
) -> None:
    """Tells what may be deleted: ladders that MLflow holds too, and data that can be fetched again. Stores stay."""
    from laptime.errors import unknown
    from laptime.places import find_places

    if what not in KINDS:
        raise unknown("kind to clean", what, KINDS)
    places = find_places()
    found: list[tuple[Path, int]] = []
    if what in ("runs", "all"):
        found += [(p, _size(p)) for p in sorted(places.runs.glob("*")) if _published(p, places.journal)]
    if what in ("data", "all") and places.data.is_dir():
        found.append((places.data, _size(places.data)))
    if as_json:
        typer.echo(json.dumps({"deleted": yes, "found": [{"path": str(p), "bytes": n} for p, n in found]}, indent=1))
    else:
        _tell(found, yes)
    if yes:
        for path, _ in found:
            shutil.rmtree(path)


def _tell(found: list[tuple[Path, int]], yes: bool) -> None:
    for path, size in found:
        typer.echo(f"{size / 2**20:10.1f} MiB  {path}")
    total = sum(size for _, size in found) / 2**20
    verb = "freed" if yes else "would be freed; add --yes to delete"
    typer.echo(f"{total:10.1f} MiB  {verb}" if found else "Nothing to delete.")


def _size(folder: Path) -> int:
    return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file())


def _published(folder: Path, journals: Path) -> bool:
    """Whether no journal still needs the folder's files."""
    from laptime.tracking.journal import is_settled

    return is_settled(journals / f"{folder.name}.jsonl")
