"""`laptime optimize`: the ladder, without Prefect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laptime.cli import options


def optimize(
    context: typer.Context,
    workload: options.WORKLOAD,
    preset: Annotated[str, typer.Option(help="quick (a few variants, little data) or full (all of both).")] = "quick",
    device: options.DEVICE = "auto",
    variants: Annotated[str, typer.Option(help="Names, separated by commas, instead of the ladder.")] = "",
    epochs: Annotated[int | None, typer.Option(help="Counted epochs of each process, short or not.")] = None,
    warmup_epochs: Annotated[int | None, typer.Option(help="Epochs before them that don't count.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Rounds: each takes every variant once.")] = None,
    limit_train: options.LIMIT_TRAIN = None,
    limit_test: options.LIMIT_TEST = None,
    data: options.DATA = "auto",
    weights: options.WEIGHTS = "none",
    seed: options.SEED = 0,
    timeout: options.TIMEOUT = 3600.0,
    ablation: Annotated[
        bool | None,
        typer.Option(
            "--ablation/--no-ablation",
            help="Leave each part of the optimized variant out in turn; default: the preset's.",
        ),
    ] = None,
    profile: options.PROFILE = None,
    no_profile: options.NO_PROFILE = False,
    profile_schedule: options.PROFILE_SCHEDULE = "1,2,5,1",
    verify_advice: Annotated[
        bool,
        typer.Option(
            "--verify-advice",
            help="Run what the advice proposes on the baseline and the fastest, three remedies each, beside them.",
        ),
    ] = False,
    verify_most: Annotated[
        str | None,
        typer.Option(metavar="N|all", help="The same on every variant: so many remedies each, or all of them."),
    ] = None,
    launcher: options.LAUNCHER = "auto",
    tracking_uri: options.TRACKING = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the ladder; default: <home>/runs/<id>.")] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a ladder that was broken off: its folder, its id or its MLflow run id; no other options.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and how long it should take.")] = False,
    as_json: options.JSON = False,
) -> None:
    """Trains the ladder of variants, compares them and publishes the runs."""
    from laptime.cli.ladder_view import planned_or_run

    raise typer.Exit(planned_or_run(context))
