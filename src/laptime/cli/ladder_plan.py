"""What a ladder or a search would run and how long that should take, before anything of it runs."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from laptime.catalogue import find_workload
from laptime.catalogue.own import is_own
from laptime.data.choices import place_called
from laptime.devices import choose_device
from laptime.durations import in_time
from laptime.ladder import LadderRequest, check_plan, settled_preset
from laptime.ladder.counted import (
    MOST_EPOCHS,
    ROUNDS_MORE,
    SHORT_TURN_S,
    WORTH_S,
    epochs_are_open,
    rounds_are_open,
)
from laptime.ladder.data import look_at_data
from laptime.ladder.estimate import Expected, expected
from laptime.ladder.pairs import FEWEST_ROUNDS, MOST_CONFIRMED, PAIRS
from laptime.ladder.verify import MOST, ROUNDS
from laptime.places import Places, find_places
from laptime.tune import foreseen, too_short


def plan_only(request: LadderRequest, as_json: bool) -> None:
    """Shows what a ladder would run and how long that should take; what could not begin is refused as it would be."""
    places = find_places()
    there = check_plan(request, places)
    device = choose_device(request.device)
    found = expected(request, device, places, there)
    if request.budget is not None:
        found = found.model_copy(update={"changes": foreseen(request, device)})
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    preset = settled_preset(request)
    title = find_workload(request.workload).titled(place_called(request.data))
    typer.echo(f"{title}, preset {preset.name}, data {request.data}")
    width = max((len(row.variant) for row in found.rows), default=0)
    counted = "epochs" if preset.epochs != 1 else "epoch"
    for row in found.rows:
        seconds = f"{row.seconds:6.0f} s" if row.seconds is not None else "unknown"
        typer.echo(f"  {row.variant:<{width}}  {preset.repeats} x {preset.epochs} {counted}   {seconds}")
    typer.echo(_expectation(found))
    if is_own(request.workload) and not request.variants:
        typer.echo("What is not for your training is found when the ladder begins, and left out with its reason.")
    for text in _uncounted(request, device, several=len(found.rows) > 1):
        typer.echo(text)
    if request.budget is not None:
        typer.echo(_searched(request.budget, found))


def too_small(request: LadderRequest, places: Places) -> str:
    """That a search's budget is too small, where earlier runs say so before it begins; empty where they don't.

    By training alone: how long a process takes to start, its first one tells.
    """
    if request.budget is None or request.resume:
        return ""
    there = look_at_data(request.workload, request.data, places)
    found = expected(request, choose_device(request.device), places, there)
    training_s = sum(row.training_s or 0.0 for row in found.rows)
    if training_s < request.budget:
        return ""
    since = f"training the baseline and where the search begins should take {in_time(training_s)}, from {found.source}"
    return f"{too_short(request.budget, since)}. Both run all the same."


def _searched(budget_s: float, found: Expected) -> str:
    if found.seconds is not None and found.seconds >= budget_s:
        since = f"the baseline and where the search begins should take {in_time(found.seconds)}"
        return f"That is too long: {too_short(budget_s, since)}."
    return (
        f"The search has what that leaves of {in_time(budget_s)}. Its changes of the optimized variant, before "
        f"this machine, the data and the advice have their say: {', '.join(found.changes)}."
    )


def _uncounted(request: LadderRequest, device: str, several: bool) -> Iterator[str]:
    """What may come to the turns that are counted: of how much nobody knows before some of them have run.

    Verified advice says how many turns it adds once there is advice.
    """
    if several and request.budget is None and device == "cpu" and settled_preset(request).repeats >= FEWEST_ROUNDS:
        yield (
            f"Not counted: {PAIRS} pairs for each variant that a headline names (up to {MOST_CONFIRMED}), where the "
            "rounds leave open whether it is faster."
        )
    if is_own(request.workload) and epochs_are_open(request):
        yield (
            f"Where {settled_preset(request).epochs} epochs and their evaluations take less than {WORTH_S:g} s, each "
            f"process counts up to {MOST_EPOCHS} (--epochs decides)."
        )
    usual = settled_preset(request).repeats
    if is_own(request.workload) and rounds_are_open(request) and usual > 1:
        yield (
            f"Where the baseline's first process takes at most {SHORT_TURN_S:g} s, there are {ROUNDS_MORE * usual} "
            f"rounds in place of {usual} (--repeats decides)."
        )
    if request.verifies:
        most = MOST if request.verify_most is None else request.verify_most
        which = "all remedies" if most == "all" else f"the first {most} remedies"
        where = "of the baseline and of the fastest" if request.verify_most is None else "of every variant"
        yield (
            f"Not counted: {ROUNDS} short turns, of one process or two, for each of {which} {where}; how many turns "
            "and minutes that makes is said before they begin."
        )


def _expectation(found: Expected) -> str:
    if found.seconds is None:
        return "Expected duration: unknown, no earlier run of these variants on such data is on record."
    long = found.seconds >= 2 * 3600
    time = f"{found.seconds / 3600:,.1f} hours" if long else f"{found.seconds / 60:.1f} minutes"
    return f"Expected duration: about {time}, from {found.source}."
