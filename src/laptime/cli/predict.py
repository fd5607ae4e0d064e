"""`laptime predict RUN IMAGE…`: a run's model at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli.options import DEVICE, JSON
from laptime.errors import shorten

if TYPE_CHECKING:
    from laptime.records import Predictions


def predict(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's or a ladder's folder, or an MLflow run id; of a ladder the fastest."
        ),
    ],
    images: Annotated[list[str], typer.Argument(metavar="IMAGE…", help="Image files, and folders of them.")],
    device: DEVICE = "auto",
    batch: Annotated[int, typer.Option(help="Images that go through the model at once.")] = 64,
    as_json: JSON = False,
) -> None:
    """Says which class each image shows, with the probability and the next two; exit code 1 where one can't be read."""
    from laptime.ladder.predict import predict as ask
    from laptime.places import find_places

    found = ask(run, images, find_places(), device, batch)
    if as_json:
        typer.echo(found.model_dump_json(by_alias=True, indent=1))
    else:
        _print(found)
    for refused in found.refused:
        typer.echo(f"laptime: {shorten(refused.reason, 400)}", err=True)
    raise typer.Exit(1 if found.refused else 0)


def _print(found: Predictions) -> None:
    """A line for each image, in columns; names are shown without control characters."""
    lines = []
    for prediction in found.predictions:
        first, *others = (f"{shorten(g.name, 60)} {g.probability * 100:.1f} %" for g in prediction.guesses)
        lines.append((shorten(prediction.file, 200), first, ", ".join(others)))
    wide = [max((len(line[i]) for line in lines), default=0) for i in range(2)]
    for file, first, more in lines:
        typer.echo(f"{file:<{wide[0]}}  {first:<{wide[1]}}  {more}".rstrip())
    typer.echo(f"{len(lines)} image{'s' * (len(lines) > 1)}, {shorten(found.model)} on {found.device}", err=True)
