"""`laptime tune`: the fastest variant that a search finds within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laptime.cli import options


def tune(
    context: typer.Context,
    workload: options.WORKLOAD,
    budget: Annotated[str, typer.Option(help="Time for all of it, from the first process on: 1200s, 20m, 1h.")] = "20m",
    preset: Annotated[str, typer.Option(help="How much data and how many epochs: quick or full.")] = "quick",
    device: options.DEVICE = "auto",
    epochs: Annotated[int | None, typer.Option(help="Counted epochs of a whole training.")] = None,
    warmup_epochs: Annotated[int | None, typer.Option(help="Epochs before them that don't count.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Rounds of the comparison at the end.")] = None,
    limit_train: options.LIMIT_TRAIN = None,
    limit_test: options.LIMIT_TEST = None,
    data: options.DATA = "auto",
    weights: options.WEIGHTS = "none",
    seed: options.SEED = 0,
    timeout: options.TIMEOUT = 3600.0,
    profile: options.PROFILE = None,
    no_profile: options.NO_PROFILE = False,
    profile_schedule: options.PROFILE_SCHEDULE = "1,2,5,1",
    launcher: options.LAUNCHER = "auto",
    tracking_uri: options.TRACKING = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the search; default: <home>/runs/<id>.")] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a search that was broken off: its folder, its id or its MLflow run id; no other options.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show where it begins and what it would try.")] = False,
    as_json: options.JSON = False,
) -> None:
    """Searches for the fastest variant that keeps quality, from the optimized one on, and compares what it finds."""
    from laptime.cli.ladder_view import planned_or_run

    raise typer.Exit(planned_or_run(context))
