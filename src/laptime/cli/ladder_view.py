"""A ladder in a terminal: progress on stderr, the table at the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from laptime.cli.bars import bars_are_drawn
from laptime.cli.ladder_plan import plan_only, too_small
from laptime.cli.options import chosen_profile, typed
from laptime.cli.words import command
from laptime.compare.terminal import print_comparison
from laptime.compare.words import count, seconds
from laptime.errors import LaptimeError, TrackingError, UsageError
from laptime.host.processes import undisturbed
from laptime.host.starts import warm_starts
from laptime.ladder import (
    Ladder,
    LadderRequest,
    Turn,
    make_request,
    open_ladder,
    prepare_data,
    resume_ladder,
)
from laptime.ladder.first_round import ends_all, tried_alone
from laptime.ladder.pairs import told
from laptime.ladder.request import tracking_uri
from laptime.launchers.base import Hooks
from laptime.places import Places, find_places
from laptime.records import EpochRecord, RunRecord
from laptime.tracking.reach import let_go
from laptime.tracking.uri import is_http, masked
from laptime.tune import led

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
    """A view on stderr; a bar only where one can be drawn."""
    if not bars_are_drawn():
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
        if small := too_small(request, places):
            shown.say(f"NOTICE: {small}")
        ladder = _opened(request, places, shown.say, given)
        if small:
            ladder = led(ladder, warned=True)
        for notice in ladder.record.data.notices:
            shown.say(f"NOTICE: {notice}")
        unsent = _through(ladder, shown)
    assert ladder.comparison is not None
    if as_json:
        typer.echo(ladder.comparison.model_dump_json(by_alias=True, indent=1))
    else:
        if not tried_alone(ladder):
            print_comparison(ladder.comparison)
        typer.echo(closing_words(ladder, unsent))
    if unsent:
        typer.echo(f"laptime: {unsent}", err=True)
    if ladder.exit_code():
        typer.echo(f"laptime: {ladder.complaint()}", err=True)
    return max(ladder.exit_code(), int(bool(unsent)))


def _opened(request: LadderRequest, places: Places, say: Say, given: Collection[str]) -> Ladder:
    try:
        if request.resume:
            return led(resume_ladder(request, places, say, given))
        return led(open_ladder(request, prepare_data(request, places, say), places, say))
    except KeyboardInterrupt as stop:
        stop.add_note("No process of the ladder had begun: to begin it, give the same command again.")
        raise


def _through(ladder: Ladder, shown: View) -> str:
    """Runs all turns, compares and publishes; gives what waits for the store, where it has not taken all."""
    if ladder.record.status == "done":
        shown.say(f"The ladder {ladder.record.id} is done, nothing was run.")
        return _publish(ladder, shown.say)
    try:
        _run(ladder, shown)
    except BaseException:
        if unsent := _publish(ladder, shown.say):
            shown.say(f"laptime: {unsent}")
        raise
    return _publish(ladder, shown.say)


def _run(ladder: Ladder, shown: View) -> None:
    """Runs all turns and compares; whatever ends it, it is closed and how to go on is said."""
    try:
        for turn in ladder.turns():
            shown.turn(turn)
            record = ladder.run(turn, Hooks(on_event=shown.event, say=shown.say))
            if ends_all(ladder, record):
                shown.say(f"  {record.status}, so nothing else is tried")  # the ladder's last line says why
            else:
                shown.result(record)
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


def _to_go_on(ladder: Ladder) -> str:
    what = "tune" if ladder.request.budget is not None else "optimize"
    return f"To go on: {command('laptime')} {what} {ladder.request.workload} --resume {ladder.folder}"


def _publish(ladder: Ladder, say: Say) -> str:
    """Sends the ladder to its store; gives what waits for it, where it has not taken all."""
    try:
        ladder.publish(say)
    except TrackingError as error:
        return str(error)
    except KeyboardInterrupt as stop:
        stop.add_note(f"{ladder.folder} is whole; what had not arrived in MLflow is kept, and laptime sync sends it.")
        raise
    return ""


def closing_words(ladder: Ladder, unsent: str = "") -> str:
    """How to open what was made, of which the store may not have all."""
    name, uri = command("laptime"), tracking_uri(ladder.request, ladder.places)
    # Of itself `laptime ui` shows the home's own store.
    ui = f"{name} ui" if uri == ladder.places.embedded_mlflow_uri else f"MLFLOW_TRACKING_URI={masked(uri)} {name} ui"
    shown = (masked(uri) if is_http(uri) else ui) + (" (once laptime sync has sent the ladder)" if unsent else "")
    return (
        f"\nReport:          {ladder.folder / 'comparison.html'}\n"
        f"MLflow:          {shown}\nTensorBoard:     {name} ui --tensorboard\nPrefect, MLflow: {name} up"
    )
