"""`laptime run`: one variant, alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laptime.cli.options import (
    DATA,
    JSON,
    LAUNCHER,
    LIMIT_TEST,
    LIMIT_TRAIN,
    NO_PROFILE,
    PROFILE,
    PROFILE_SCHEDULE,
    SEED,
    TIMEOUT,
    WEIGHTS,
    WORKLOAD,
    chosen_profile,
)


def run(
    workload: WORKLOAD,
    variant: Annotated[str, typer.Option(help="A variant: see laptime list variants.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="optimization.option=value; may be repeated.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Counted epochs.")] = 1,
    warmup_epochs: Annotated[int, typer.Option(help="Epochs before them that don't count.")] = 1,
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
    out: Annotated[Path | None, typer.Option(help="Folder of spec, record and log; default: <home>/runs/<id>.")] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(help="Folder or s3:// prefix of this run's own: broken off, the same command goes on from there."),
    ] = None,
    bare: Annotated[bool, typer.Option("--bare", help="Times alone: no check, no model, no profile.")] = False,
    as_json: JSON = False,
) -> None:
    """Trains one variant and writes its record; nothing is compared or published."""
    from laptime.cli.ladder_view import view
    from laptime.ladder import make_request, run_single
    from laptime.places import find_places
    from laptime.records.simple import simple_table

    request = make_request(
        workload=workload,
        preset="full",
        variants=variant,
        epochs=epochs,
        warmup_epochs=warmup_epochs,
        limit_train=limit_train,
        limit_test=limit_test,
        data=data,
        weights=weights,
        seed=seed,
        timeout=timeout,
        profile=chosen_profile(profile, no_profile),
        profile_schedule=profile_schedule,
        launcher=launcher,
        out=str(out) if out else None,
    )
    with view() as shown:
        told = (shown.say, shown.event)
        record, folder = run_single(request, tuple(settings or ()), find_places(), told, bare, checkpoints)
        shown.result(record)
    if as_json:
        typer.echo(record.model_dump_json(by_alias=True, indent=1))
    else:
        if request.profile == "simple" and not bare and record.epochs:
            typer.echo(simple_table(record))
        typer.echo(f"Record: {folder / 'record.json'}")
    raise typer.Exit(0 if record.status == "done" else 1)
