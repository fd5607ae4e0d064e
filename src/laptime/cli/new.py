"""`laptime new`: a commented training of the user's own that runs as it is."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from laptime.cli.options import JSON
from laptime.cli.words import command


def new(
    file: Annotated[Path, typer.Argument(help="The Python file to write.", metavar="FILE")], as_json: JSON = False
) -> None:
    """Writes a commented training of your own, which laptime optimize runs as it is."""
    from laptime.errors import UsageError, shorten

    if file.suffix != ".py" or not file.stem.isidentifier():
        raise UsageError(f"{shorten(str(file))!r} is no name for a Python file: give one such as my_train.py.")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(files("laptime.cli").joinpath("own_workload.py.txt").read_text(encoding="utf-8"))
    except FileExistsError:
        raise UsageError(f"{shorten(str(file))!r} exists already: give another name or remove it.") from None
    following = f"{command('laptime')} optimize {file}:workload --limit-train 2000"
    typer.echo(json.dumps({"file": str(file), "next": following}) if as_json else f"Wrote {file}. Next: {following}")
