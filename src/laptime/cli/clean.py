"""`laptime clean`: what may be deleted, and how much it frees."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from laptime.cli.options import JSON

KINDS = ("runs", "data", "all")
# Beside the stores in the data's folder; it costs next to nothing.
INDEX = "index"


def clean(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="runs, data or all.")] = "all",
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it the command only tells.")] = False,
    as_json: JSON = False,
) -> None:
    """Tells what may be deleted: ladders that are done and in MLflow, and data to be fetched again. Stores stay."""
    from laptime.errors import unknown
    from laptime.places import find_places

    if what not in KINDS:
        raise unknown("kind to clean", what, KINDS)
    places = find_places()
    found: list[tuple[Path, int]] = []
    kept: list[Path] = []
    if what in ("runs", "all"):
        kept = [path for path in sorted(places.runs.glob("*")) if _goes_on(path)]
        gone = (p for p in sorted(places.runs.glob("*")) if p not in kept and _published(p, places.journal))
        found += [(path, _size(path)) for path in gone]
    if what in ("data", "all"):
        needed = {digest for path in places.runs.glob("*") if _stays(path, places.journal) for digest in _data_of(path)}
        stores = (p for p in sorted(places.data.glob("*")) if not p.name.startswith(".") and p.name != INDEX)
        found += [(path, _size(path)) for path in stores if path.name not in needed]
    if yes:
        for path, _ in found:
            if path.is_symlink() or path.is_file():  # what a link leads to is somebody's own
                path.unlink()
            else:
                shutil.rmtree(path)
    _tell(found, kept, yes, as_json)


def _tell(found: list[tuple[Path, int]], kept: list[Path], yes: bool, as_json: bool) -> None:
    if as_json:
        paths = [{"path": str(p), "bytes": n} for p, n in found]
        typer.echo(json.dumps({"deleted": yes, "found": paths, "kept": [str(p) for p in kept]}, indent=1))
        return
    for path in kept:
        typer.echo(f"      kept      {path}: not done, so it can be gone on with (--resume); delete it yourself")
    for path, size in found:
        typer.echo(f"{size / 2**20:10.1f} MiB  {path}")
    total = sum(size for _, size in found) / 2**20
    verb = "freed" if yes else "would be freed; add --yes to delete"
    typer.echo(f"{total:10.1f} MiB  {verb}" if found else "Nothing to delete.")


def _size(folder: Path) -> int:
    return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file())


def _goes_on(folder: Path) -> bool:
    """Whether a ladder is not done and keeps what `--resume` needs."""
    from laptime.errors import LaptimeError
    from laptime.records import read_ladder

    try:
        ladder = read_ladder(folder / "ladder.json")
    except LaptimeError:
        return False
    return ladder.status != "done" and ladder.request is not None


def _stays(folder: Path, journals: Path) -> bool:
    """Whether a run is to be gone on with, or waits to be sent: models are logged with what their data say."""
    return _goes_on(folder) or not _published(folder, journals)


def _data_of(folder: Path) -> set[str]:
    """Digests of the data that a ladder or a run was planned on; none where nothing can be read."""
    from laptime.errors import LaptimeError
    from laptime.records import read_ladder
    from laptime.spec import read_spec

    found: set[str] = set()
    with suppress(LaptimeError):
        found.add(read_ladder(folder / "ladder.json").data.digest)
    for path in (folder / "spec.json", *folder.glob("*/spec.json")):
        with suppress(LaptimeError):
            found.add(read_spec(path).data.digest)
    return found


def _published(folder: Path, journals: Path) -> bool:
    """Whether no journal still needs the folder's files."""
    from laptime.tracking.journal import is_settled

    return is_settled(journals / f"{folder.name}.jsonl")
