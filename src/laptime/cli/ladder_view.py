"""A ladder in a terminal: progress on stderr, the table at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from laptime.catalogue import find_workload
from laptime.catalogue.own import is_own
from laptime.cli.options import chosen_profile, typed
from laptime.cli.words import command
from laptime.compare.terminal import print_comparison
from laptime.compare.words import count, seconds
from laptime.devices import choose_device
from laptime.errors import LaptimeError, TrackingError, UsageError
from laptime.host.processes import undisturbed
from laptime.host.starts import warm_starts
from laptime.ladder import (
    Ladder,
    LadderRequest,
    Turn,
    check_request,
    make_request,
    open_ladder,
    prepare_data,
    resume_ladder,
    settled_preset,
)
from laptime.ladder.estimate import Expected, expected
from laptime.ladder.pairs import told
from laptime.ladder.request import tracking_uri
from laptime.ladder.verify import MOST, ROUNDS
from laptime.launchers.base import Hooks
from laptime.places import Places, find_places
from laptime.records import EpochRecord, RunRecord
from laptime.tracking.reach import let_go
from laptime.tracking.uri import is_http, masked
from laptime.tune import foreseen, led

Say = Callable[[str], None]
# Epochs that a line of a terminal has room for.
_LAPS_SHOWN = 10


class View:
    """Shows a ladder's progress: a live line where stderr is a terminal, a line a turn elsewhere."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None, info="") if progress else None

    def say(self, text: str) -> None:
        """Shows a sentence."""
        if self._progress is not None and self._task is not None:
            self._progress.console.print(text, highlight=False, markup=False)
        else:
            typer.echo(text, err=True)

    def turn(self, turn: Turn) -> None:
        """Shows what runs now."""
        text = f"{turn.number}/{turn.total} {turn}"
        if self._progress is None or self._task is None:
            typer.echo(text, err=True)
        else:
            self._progress.reset(self._task, description=text, total=None, info="starting")

    def event(self, event: dict[str, Any]) -> None:
        """Shows a worker's progress event."""
        if self._progress is None or self._task is None:
            return
        if event["event"] == "phase":
            self._progress.update(self._task, info=event["phase"])
        if event["event"] == "step":
            name = "warm-up" if event["epoch"] < 0 else f"epoch {event['epoch'] + 1}"
            self._progress.update(self._task, completed=event["done"], total=event["steps"], info=name)

    def result(self, record: RunRecord) -> None:
        """Shows what came out of a turn."""
        if record.status != "done" or record.spec is None:
            self.say(f"  {record.status}: {record.error}")
            return
        last = record.epochs[-1]
        times = _times([e.epoch_s for e in record.kept])
        self.say(f"  {record.spec.variant}: {times}, {count(last.samples_per_s or 0)} samples/s, {_reached(last)}")


def _times(laps: Sequence[float]) -> str:
    """All epochs while they stand in one line."""
    if len(laps) <= _LAPS_SHOWN:
        return f"{', '.join(map(seconds, laps))} s an epoch"
    middle, least, most = (seconds(f(laps)) for f in (median, min, max))
    return f"{middle} s an epoch ({least} to {most}, {len(laps)} epochs)"


def _reached(epoch: EpochRecord) -> str:
    if epoch.test_map50 is not None:
        strict = "" if epoch.test_map is None else f" (0.5:0.95: {epoch.test_map * 100:.1f} %)"
        return f"mAP@0.5 {epoch.test_map50 * 100:.1f} %{strict}"
    if epoch.test_score is not None:
        return f"test score {epoch.test_score * 100:.1f} %"
    if epoch.test_error is not None:
        return f"test error {epoch.test_error:.4g}"
    if epoch.test_accuracy is None:
        return f"test loss {epoch.test_loss:.4g}" if epoch.test_loss is not None else "not evaluated"
    return f"test accuracy {epoch.test_accuracy * 100:.1f} %"


@contextmanager
def view() -> Iterator[View]:
    """A view on stderr; a bar only where that is a terminal."""
    if not sys.stderr.isatty():
        yield View(None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[info]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield View(progress)


def planned_or_run(context: typer.Context) -> int:
    """Does what `optimize` or `tune` was asked for, whose options the context holds; returns the exit code.

    Raises:
        UsageError: options that make no sense, or not together.
    """
    given, fields = context.params, LadderRequest.model_fields
    asked = {name: value for name, value in given.items() if name in fields}
    out = given["out"] and str(given["out"])
    request = make_request(**asked | {"profile": chosen_profile(given["profile"], given["no_profile"]), "out": out})
    if given["dry_run"] and request.resume:
        what = "ladder" if request.budget is None else "search"
        raise UsageError(
            f"--dry-run and --resume contradict each other: a {what} that is gone on with is planned already."
        )
    if given["dry_run"]:
        plan_only(request, given["as_json"])
        return 0
    return run_ladder(request, given["as_json"], typed(context, fields))


def run_ladder(request: LadderRequest, as_json: bool, given: Collection[str]) -> int:
    """Runs a ladder to its end, or to the end of the one that the request names; returns the exit code.

    Args:
        request: the options.
        as_json: whether the comparison is printed for machines.
        given: the options that were typed.
    """
    places = find_places()
    with warm_starts(), view() as shown:
        ladder = _opened(request, places, shown.say, given)
        for notice in ladder.record.data.notices:
            shown.say(f"NOTICE: {notice}")
        published = _through(ladder, shown)
    assert ladder.comparison is not None
    if as_json:
        typer.echo(ladder.comparison.model_dump_json(by_alias=True, indent=1))
    else:
        print_comparison(ladder.comparison)
        typer.echo(closing_words(ladder))
    if ladder.exit_code():
        typer.echo(f"laptime: {ladder.complaint()}", err=True)
    return max(ladder.exit_code(), published)


def _opened(request: LadderRequest, places: Places, say: Say, given: Collection[str]) -> Ladder:
    try:
        if request.resume:
            return led(resume_ladder(request, places, say, given))
        return led(open_ladder(request, prepare_data(request, places, say), places, say))
    except KeyboardInterrupt as stop:
        stop.add_note("No process of the ladder had begun: to begin it, give the same command again.")
        raise


def _through(ladder: Ladder, shown: View) -> int:
    """Runs all turns, compares and publishes; 1 where publishing failed."""
    if ladder.record.status == "done":
        shown.say(f"The ladder {ladder.record.id} is done, nothing was run.")
        return _publish(ladder, shown.say)
    try:
        for turn in ladder.turns():
            shown.turn(turn)
            shown.result(ladder.run(turn, Hooks(on_event=shown.event, say=shown.say)))
            if turn.beside and (text := told(ladder, turn)):
                shown.say(f"  {text}")
        ladder.compare()
        ladder.close("failed" if ladder.exit_code() else "done")
    except (LaptimeError, OSError):
        shown.say(_to_go_on(ladder))
        ladder.close("failed")
        raise
    except KeyboardInterrupt as stop:
        with undisturbed():
            let_go(stop)
            shown.say(f"Interrupted: the run is marked, what was measured is kept in {ladder.folder}")
            shown.say(_to_go_on(ladder))
            ladder.close("interrupted")
        shown.say("Sending it to MLflow, seconds for each model: Ctrl-C again leaves the rest to laptime sync.")
        raise typer.Exit(130) from None
    finally:
        ladder.close("interrupted")
        published = _publish(ladder, shown.say)
    return published


def _to_go_on(ladder: Ladder) -> str:
    what = "tune" if ladder.request.budget is not None else "optimize"
    return f"To go on: {command('laptime')} {what} {ladder.request.workload} --resume {ladder.folder}"


def _publish(ladder: Ladder, say: Say) -> int:
    try:
        ladder.publish(say)
    except TrackingError as error:
        say(f"laptime: {error}")
        return 1
    except KeyboardInterrupt as stop:
        stop.add_note(f"{ladder.folder} is whole; what had not arrived in MLflow is kept, and laptime sync sends it.")
        raise
    return 0


def closing_words(ladder: Ladder) -> str:
    """How to open what was made."""
    name, uri = command("laptime"), tracking_uri(ladder.request, ladder.places)
    # Of itself `laptime ui` shows the home's own store.
    ui = f"{name} ui" if uri == ladder.places.embedded_mlflow_uri else f"MLFLOW_TRACKING_URI={masked(uri)} {name} ui"
    shown = masked(uri) if is_http(uri) else ui
    return (
        f"\nReport:          {ladder.folder / 'comparison.html'}\n"
        f"MLflow:          {shown}\nTensorBoard:     {name} ui --tensorboard\nPrefect, MLflow: {name} up"
    )


def plan_only(request: LadderRequest, as_json: bool) -> None:
    """Shows what a ladder would run and how long that should take; what could not begin is refused as it would be."""
    places = find_places()
    check_request(request, places)
    device = choose_device(request.device)
    found = expected(request, device, places)
    if request.budget is not None:
        found = found.model_copy(update={"changes": foreseen(request, device)})
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    preset = settled_preset(request)
    typer.echo(f"{find_workload(request.workload).title}, preset {preset.name}, data {request.data}")
    width = max((len(row.variant) for row in found.rows), default=0)
    counted = "epochs" if preset.epochs != 1 else "epoch"
    for row in found.rows:
        seconds = f"{row.seconds:6.0f} s" if row.seconds is not None else "unknown"
        typer.echo(f"  {row.variant:<{width}}  {preset.repeats} x {preset.epochs} {counted}   {seconds}")
    typer.echo(_expectation(found))
    if is_own(request.workload) and not request.variants:
        typer.echo("What is not for your training is found when the ladder begins, and left out with its reason.")
    if request.verifies:
        typer.echo(_uncounted(request))
    if request.budget is not None:
        typer.echo(_searched(request.budget, found))


def _searched(budget_s: float, found: Expected) -> str:
    given = f"{budget_s / 60:g} min" if budget_s >= 60 else f"{budget_s:g} s"
    if found.seconds is not None and found.seconds >= budget_s:
        return f"That leaves nothing of the budget ({given}), so no change would be tried: give a larger one."
    return (
        f"The search has what that leaves of {budget_s / 60:g} minutes. Its changes of the optimized variant, before "
        f"this machine, the data and the advice have their say: {', '.join(found.changes)}."
    )


def _uncounted(request: LadderRequest) -> str:
    """What verifying the advice adds: how much is known only once there is advice, and told then."""
    most = MOST if request.verify_most is None else request.verify_most
    which = "all remedies" if most == "all" else f"the first {most} remedies"
    where = "of the baseline and of the fastest" if request.verify_most is None else "of every variant"
    return (
        f"Not counted: {ROUNDS} short turns, of one process or two, for each of {which} {where}; how many turns and "
        "minutes that makes is said before they begin."
    )


def _expectation(found: Expected) -> str:
    if found.seconds is None:
        return "Expected duration: unknown, no earlier run of these variants on such data is on record."
    long = found.seconds >= 2 * 3600
    time = f"{found.seconds / 3600:,.1f} hours" if long else f"{found.seconds / 60:.1f} minutes"
    return f"Expected duration: about {time}, from {found.source}."
