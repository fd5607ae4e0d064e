"""`laptime run`: one variant, alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli import options
from laptime.cli.words import command
from laptime.errors import UsageError, printable

if TYPE_CHECKING:
    from laptime.cli.ladder_view import View
    from laptime.ladder.lone import LoneRun
    from laptime.ladder.request import LadderRequest
    from laptime.ladder.single import Single
    from laptime.records import RunRecord

    # The request, options of optimizations, and where checkpoints stand.
    Asked = tuple[LadderRequest, tuple[str, ...], str | None]


def run(
    workload: options.WORKLOAD,
    variant: Annotated[str, typer.Option(help="A variant: see laptime list variants.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="optimization.option=value; may be repeated.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Counted epochs.")] = 1,
    warmup_epochs: Annotated[int, typer.Option(help="Epochs before them that don't count.")] = 1,
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
    out: Annotated[Path | None, typer.Option(help="Folder of spec, record and log; default: <home>/runs/<id>.")] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(help="Folder or s3:// prefix of this run's own: broken off, the same command goes on from there."),
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Times alone: no check, no model, no profile, no advice, nothing in MLflow.")
    ] = False,
    as_json: options.JSON = False,
) -> None:
    """Trains one variant, publishes the run and says what to change next; nothing is compared."""
    from laptime.ladder import make_request

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
        profile=options.chosen_profile(profile, no_profile),
        profile_schedule=profile_schedule,
        launcher=launcher,
        tracking_uri=tracking_uri,
        out=str(out) if out else None,
    )
    asked = (request, tuple(settings or ()), checkpoints)
    raise typer.Exit(_bare(asked, as_json) if bare else _published(asked, as_json))


def _bare(asked: Asked, as_json: bool) -> int:
    """Runs it and writes its record alone."""
    from laptime.cli.ladder_view import view
    from laptime.ladder import plan_single
    from laptime.launchers.base import Hooks
    from laptime.places import find_places

    request, settings, checkpoints = asked
    if request.tracking_uri:
        raise UsageError("--bare and --tracking-uri contradict each other: a bare run is not published.")
    with view() as shown:
        single = plan_single(request, settings, find_places(), shown.say, checkpoints).bare()
        record = single.run(Hooks(on_event=shown.event, say=shown.say, samples=False))
        shown.result(record)
    typer.echo(_json(record) if as_json else _place(single))
    return _code(record)


def _published(asked: Asked, as_json: bool) -> int:
    """Runs it, whoever else hears of it: the journal, MLflow, and the user what to change next."""
    from laptime.cli.ladder_view import view
    from laptime.ladder import plan_single
    from laptime.ladder.lone import LoneRun
    from laptime.ladder.request import tracking_uri
    from laptime.places import find_places

    request, settings, checkpoints = asked
    places = find_places()
    uri = tracking_uri(request, places)
    with view() as shown:
        single = plan_single(request, settings, places, shown.say, checkpoints)
        for notice in single.spec.data.notices:
            shown.say(f"NOTICE: {notice}")
        lone = LoneRun(single, places, uri, shown.say)
        record, published = _through(lone, shown, checkpoints)
    if as_json:
        typer.echo(_json(record))
    else:
        if request.profile == "simple" and record.epochs:
            from laptime.records.simple import simple_table

            typer.echo(simple_table(record))
        typer.echo("\n".join([_place(single), *_advice(lone), *_store(lone)]))
    return _code(record) if published else 1


def _through(lone: LoneRun, shown: View, checkpoints: str | None) -> tuple[RunRecord, bool]:
    """Runs, tells and publishes it; its record, and whether the store took it."""
    from laptime.launchers.base import Hooks

    try:
        with lone:
            record = lone.run(Hooks(on_event=shown.event, say=shown.say))
            shown.result(record)
            lone.tell(record)
    except KeyboardInterrupt:
        shown.say(f"Interrupted: the run is marked, what was written is in {lone.single.folder}")
        if checkpoints:
            shown.say("The same command goes on from the last checkpoint.")
        raise typer.Exit(130) from None
    finally:
        published = _sent(lone)
    return record, published


def _sent(lone: LoneRun) -> bool:
    try:
        return lone.publish()
    except KeyboardInterrupt as stop:
        stop.add_note("What had not arrived in MLflow is kept, and laptime sync sends it.")
        raise


def _json(record: RunRecord) -> str:
    return record.model_dump_json(by_alias=True, indent=1)


def _code(record: RunRecord) -> int:
    return 0 if record.status == "done" else 1


def _place(single: Single) -> str:
    return f"Record: {single.folder / 'record.json'}"


def _advice(lone: LoneRun) -> list[str]:
    """The headline, and the command of what is most worth doing."""
    lines = []
    if lone.advice is not None:
        lines.append(f"Advice: {printable(lone.advice.verdict)}")
        lines += [f"        $ {printable(f.command)}" for f in lone.advice.findings[:1] if f.variant]
        lines.append(f"        All of it: {lone.single.folder / 'advice.md'}")
    return [*lines, f"Before: {lone.afterwards}"] if lone.afterwards else lines


def _store(lone: LoneRun) -> list[str]:
    from laptime.tracking import masked

    if lone.run_id is None:
        return []
    where = f"{command('laptime')} ui" if lone.embedded else masked(lone.uri)
    return [f"MLflow: {where}, run {lone.run_id}"]
