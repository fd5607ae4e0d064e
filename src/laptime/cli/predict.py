"""`laptime predict RUN IMAGE…`: a run's model at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli.options import DEVICE, JSON
from laptime.errors import shorten

if TYPE_CHECKING:
    from laptime.records import Prediction, Predictions

# torchvision's detectors tell no box below it.
_LEAST_SCORE = 0.05


def predict(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run's or a ladder's folder, or an MLflow run id; of a ladder the fastest."
        ),
    ],
    images: Annotated[list[str], typer.Argument(metavar="IMAGE", help="Image files, and folders of them.")],
    device: DEVICE = "auto",
    batch: Annotated[int, typer.Option(help="Images that go through the model at once; a detector's one by one.")] = 64,
    score: Annotated[float, typer.Option(help="The score that a detector's boxes have at least, 0 to 1.")] = 0.5,
    draw: Annotated[
        str, typer.Option(metavar="FOLDER", help="Writes the images with a detector's boxes into it, as JPEG files.")
    ] = "",
    as_json: JSON = False,
) -> None:
    """Says which class each image shows, with the probability and the next two, or the boxes that a detector finds.

    Exit code 1 where an image can't be read.
    """
    from laptime.ladder.predict import How
    from laptime.ladder.predict import predict as ask
    from laptime.places import find_places

    found = ask(run, images, find_places(), How(device, batch, score, draw))
    if as_json:
        typer.echo(found.model_dump_json(by_alias=True, indent=1))
    else:
        _print(found)
        _print_empty(found, score)
        _print_drawn(found, draw)
    for refused in found.refused:
        typer.echo(f"laptime: {shorten(refused.reason, 400)}", err=True)
    raise typer.Exit(1 if found.refused else 0)


def _print(found: Predictions) -> None:
    """A line for each image or box, in columns; names are shown without control characters."""
    lines = [line for prediction in found.predictions for line in _lines(prediction)]
    wide = [max((len(line[i]) for line in lines), default=0) for i in range(2)]
    for file, first, more in lines:
        typer.echo(f"{file:<{wide[0]}}  {first:<{wide[1]}}  {more}".rstrip())
    count = len(found.predictions)
    typer.echo(f"{count} image{'s' * (count != 1)}, {shorten(found.model)} on {found.device}", err=True)


def _print_empty(found: Predictions, score: float) -> None:
    """Says of images without a box that a lower score tells more, since a young detector is sure of little."""
    empty = sum(p.boxes is not None and not p.boxes for p in found.predictions)
    if empty and score > _LEAST_SCORE:
        typer.echo(
            f"{empty} without a box of {score * 100:g} % or more: a lower --score, down to {_LEAST_SCORE:g}, tells "
            "what the detector is less sure of.",
            err=True,
        )


def _print_drawn(found: Predictions, folder: str) -> None:
    count = sum(p.drawn is not None for p in found.predictions)
    if count:
        typer.echo(f"{count} image{'s' * (count != 1)} with boxes in {shorten(folder, 200)}", err=True)


def _lines(prediction: Prediction) -> list[tuple[str, str, str]]:
    """File, answer and what else there is to it; a line for each box, whose sides are in whole pixels."""
    file = shorten(prediction.file, 200)
    if prediction.boxes is None:
        first, *others = (_share(guess.name, guess.probability) for guess in prediction.guesses)
        return [(file, first, ", ".join(others))]
    found = [
        (file, _share(b.name, b.score), f"xmin {b.xmin:.0f}, ymin {b.ymin:.0f}, xmax {b.xmax:.0f}, ymax {b.ymax:.0f}")
        for b in prediction.boxes
    ]
    return found or [(file, "nothing found", "")]


def _share(name: str, share: float) -> str:
    return f"{shorten(name, 60)} {share * 100:.1f} %"
