"""`laptime tune`: the fastest variant that a search finds within a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laptime.cli.options import (
    DATA,
    DEVICE,
    JSON,
    LAUNCHER,
    LIMIT_TEST,
    LIMIT_TRAIN,
    NO_PROFILE,
    PROFILE,
    PROFILE_SCHEDULE,
    SEED,
    TIMEOUT,
    TRACKING,
    WEIGHTS,
    WORKLOAD,
    chosen_profile,
    typed,
)
from laptime.errors import UsageError


def tune(
    context: typer.Context,
    workload: WORKLOAD,
    budget: Annotated[str, typer.Option(help="Time for all of it, from the first process on: 1200s, 20m, 1h.")] = "20m",
    preset: Annotated[str, typer.Option(help="How much data and how many epochs: quick or full.")] = "quick",
    device: DEVICE = "auto",
    epochs: Annotated[int | None, typer.Option(help="Counted epochs of a whole training.")] = None,
    warmup_epochs: Annotated[int | None, typer.Option(help="Epochs before them that don't count.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Rounds of the comparison at the end.")] = None,
    limit_train: LIMIT_TRAIN = None,
    limit_test: LIMIT_TEST = None,
    data: DATA = "auto",
    weights: WEIGHTS = "none",
    seed: SEED = 0,
    timeout: TIMEOUT = 3600.0,
    profile: PROFILE = None,
    no_profile: NO_PROFILE = False,
    profile_schedule: PROFILE_SCHEDULE = "1,2,5,1",
    launcher: LAUNCHER = "auto",
    tracking_uri: TRACKING = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the search; default: <home>/runs/<id>.")] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a search that was broken off: its folder, its id or its MLflow run id; no other options.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show where it begins and what it would try.")] = False,
    as_json: JSON = False,
) -> None:
    """Searches for the fastest variant that keeps quality, from the optimized one on, and compares what it finds."""
    from laptime.cli.ladder_view import plan_only, run_ladder
    from laptime.ladder import make_request

    request = make_request(
        workload=workload,
        preset=preset,
        device=device,
        epochs=epochs,
        warmup_epochs=warmup_epochs,
        repeats=repeats,
        limit_train=limit_train,
        limit_test=limit_test,
        data=data,
        weights=weights,
        seed=seed,
        timeout=timeout,
        profile=chosen_profile(profile, no_profile),
        profile_schedule=profile_schedule,
        launcher=launcher,
        budget=budget,
        tracking_uri=tracking_uri,
        out=str(out) if out else None,
        resume=resume,
    )
    if dry_run and resume:
        raise UsageError(
            "--dry-run and --resume contradict each other: a search that is gone on with is planned already."
        )
    if dry_run:
        plan_only(request, as_json)
        return
    raise typer.Exit(run_ladder(request, as_json, typed(context, type(request).model_fields)))
