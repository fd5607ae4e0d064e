"""Goes on with a ladder that was broken off, wherever that was: with its request, its records and its decisions."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from laptime.catalogue.own import resolved
from laptime.compare.comparison import compare
from laptime.compare.load import load
from laptime.compare.sides import load_sides
from laptime.data.own.importing import belonging, digest_of
from laptime.errors import DataError, RunError, TrackingError, UsageError, shorten
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.opening import attended, catch_up, plan_of
from laptime.ladder.request import LadderRequest, kept_request, make_request, tracking_uri
from laptime.ladder.run import Ladder, Say
from laptime.ladder.surroundings import commit, run_probe
from laptime.launchers.base import ignore
from laptime.places import Places, expanded
from laptime.records import LadderRecord, Machine, read_ladder
from laptime.spec import DataSpec, OwnSpec, option_name
from laptime.tracking import Journal, masked
from laptime.tracking.events import Started, read_journal
from laptime.tracking.journal import JournalBusyError, read_state
from laptime.tracking.outage import Outage
from laptime.tracking.owner import Owner, open_run
from laptime.tracking.sync import store_of

LADDER = "ladder.json"
# What may be another than before, since no result depends on it.
_FREE = ("timeout", "out", "resume")
# What a sync that replays the journal may hold it for, about.
_PATIENCE_S, _LOOK_EVERY_S = 10.0, 0.2
# What a ladder that is gone on with decides once more, out of the records of its turns.
_DECIDED: dict[str, Any] = {"rungs": (), "dropped": (), "worths": {}, "confirmed": {}, "search": None, "retracted": {}}
ANEW: Mapping[str, Any] = {**_DECIDED, "status": "running", "ended_at": None}
_DECIDES_SPEED = ("cpu", "cores", "memory_gib", "gpus", "os", "python", "torch", "torchvision", "cuda", "variables")


def resume_ladder(
    request: LadderRequest, places: Places, say: Say = ignore, given: Collection[str] | None = None
) -> Ladder:
    """Opens the ladder that `request.resume` names, to be run, compared and closed as any other.

    Its turns come again in their order: those that had ended take their records and start nothing, an interrupted one
    goes on from its last checkpoint. One that is done has no turns.

    Args:
        request: names the ladder; its other options are those of the ladder already.
        places: where it stands.
        say: takes sentences.
        given: the options that the user has typed; None for those that differ from their defaults.

    Raises:
        UsageError: there is no such ladder here, or an option contradicts it.
        RunError: it runs, or went on another machine, torch or code.
        DataError: its files can't be read, or its data are not to be had again.
    """
    folder = find_ladder(request.resume or "", places)
    journal = _held(places, read_ladder(folder / LADDER).id)
    try:
        record = read_ladder(folder / LADDER)  # whoever held the journal until now may have written it
        asked = agreed_request(request, record, folder, given)
        if request.tracking_uri is None:
            asked = at_its_store(asked, journal.path, places, say)
        if record.status == "done":
            journal.close()
            return _finished(asked, record, places)
        outage = catch_up(tracking_uri(asked, places), places, say)  # first: what is refused has ended, in MLflow too
        check_code(record, commit(), say)
        data = _data_again(asked, record, places, say)
        _check_machine(record, data, places, say)
    except BaseException:
        journal.close()
        raise
    return _opened(asked, record.model_copy(update={"data": data}), places, say, journal, outage)


def find_ladder(named: str, places: Places) -> Path:
    """The folder of a ladder that is named by it, by the ladder's id or by its MLflow run id.

    Raises:
        UsageError: there is none.
    """
    for folder in (expanded(named), places.runs / named, _of_journal(named, places), _of_run(named, places)):
        if folder is not None and (folder / LADDER).is_file():
            return folder.resolve()
    raise UsageError(
        f"--resume {shorten(named)!r} names no ladder on this machine: give its folder (it holds {LADDER}), its id, or "
        "the MLflow id of its run."
    )


def agreed_request(
    request: LadderRequest, record: LadderRecord, folder: Path, given: Collection[str] | None
) -> LadderRequest:
    """The ladder's own request, with what of the new one no result depends on.

    Raises:
        UsageError: an option contradicts it, or the ladder keeps no request.
    """
    if record.request is None:
        raise UsageError(f"the ladder {record.id} comes from a version that kept no request: start it anew.")
    asked, defaults = kept_request(request), kept_request(LadderRequest())
    named = {name for name in asked if asked[name] != defaults[name]} if given is None else set(given)
    before = {**record.request, "workload": resolved(record.request.get("workload", ""))}
    for name in sorted(named - {*_FREE}):
        if asked[name] != before.get(name):
            go_on = "give that" if name == "workload" else "leave it out"
            raise UsageError(
                f"{option_name(name)} {_shown(asked[name])} contradicts the ladder {record.id}, which was "
                f"started with {_shown(before.get(name))}: {go_on} to go on, or start a ladder of its own."
            )
    if request.out and Path(request.out).resolve() != folder:
        raise UsageError(f"--out {request.out!r} is not the ladder's folder {folder}: leave it out.")
    # As typed now: what was kept has lost its password.
    fresh = {name: getattr(request, name) for name in named & {"timeout", "tracking_uri", "data"}}
    return make_request(**{**record.request, **fresh, "out": str(folder)})


def at_its_store(asked: LadderRequest, journal: Path, places: Places, say: Callable[[str], None]) -> LadderRequest:
    """The request with the store that the ladder's runs are in, whatever MLFLOW_TRACKING_URI names by now."""
    store, now = store_of(journal, places, places.mlflow_uri), places.mlflow_uri
    if store != now and asked.tracking_uri is None:
        say(f"NOTICE: the ladder's runs go on in {masked(store)}, where they began, and not in {masked(now)}.")
    return make_request(**{**asked.model_dump(), "tracking_uri": store})


def check_code(record: LadderRecord, now: str | None, say: Callable[[str], None]) -> None:
    """Refuses code that has changed since the ladder began, as far as laptime's version and version control show.

    Raises:
        RunError: laptime is another, or Python files differ between both commits.
    """
    if record.laptime not in (None, version("laptime")):
        raise RunError(
            f"the ladder {record.id} began with laptime {record.laptime} and this is {version('laptime')}, so its "
            "times would not compare: install the former, or start a new ladder."
        )
    before = record.commit or ""
    if not before or now is None:
        return
    old, new = before.rstrip("+"), now.rstrip("+")
    if old != new and not _same_code(old, new):
        raise RunError(
            f"the ladder {record.id} began at commit {old}, and Python files have changed up to {new}, so its times "
            f"would not compare: go on at the old one (git switch --detach {old}), or start a new ladder."
        )
    if "+" in before + now:
        say(
            f"NOTICE: files beside commit {old} were changed when the ladder began or are now: where that changed what "
            "is trained, times before and after the break don't compare."
        )


def differences(before: Machine, now: Machine) -> list[str]:
    """What of a machine that decides speed is another than before, in words."""
    if not before.fingerprint or before.fingerprint == now.fingerprint:
        return []
    pairs = [(name, getattr(before, name), getattr(now, name)) for name in _DECIDES_SPEED]
    return [f"{name} {_shown(then)} then and {_shown(here)} now" for name, then, here in pairs if then != here]


def _check_machine(record: LadderRecord, data: DataSpec, places: Places, say: Say) -> None:
    what = data.model_dump_json() if data.own else record.workload
    say("Looking whether this is the machine that the ladder began on (seconds)")
    found = differences(record.probe.machine, run_probe((what, record.device), places, say, ()).machine)
    if found:
        raise RunError(
            f"the ladder {record.id} began on another machine, with another torch or in another environment "
            f"({'; '.join(found)}), so its times would not compare: go on there, or start a new ladder here."
        )


def _same_code(old: str, new: str) -> bool:
    command = ["git", "diff", "--quiet", old, new, "--", ":/*.py"]  # of the whole tree, wherever this was started
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _data_again(asked: LadderRequest, record: LadderRecord, places: Places, say: Say) -> DataSpec:
    """The ladder's data, brought again where they are gone.

    Raises:
        DataError: they are others now.
    """
    data = record.data
    path = Path(data.path)
    if data.own is not None:
        _require_own(path, data.own, record.id)
        return data
    if path.exists():
        return data
    found = fetch_data(asked.workload, asked.data, places, in_words(say))
    if found.digest != data.digest:
        raise DataError(
            f"the data of the ladder {record.id} ({data.kind} {data.digest[:12]}) are gone from {path}, and what can "
            f"be had now are others ({found.kind} {found.digest[:12]}): bring the former back, or start a new ladder."
        )
    return found


def _require_own(path: Path, own: OwnSpec, ladder: str) -> None:
    """Refuses a user's file that is gone or has changed, as may its modules; of an empty digest nothing is known."""
    if own.file and not path.is_file():
        raise DataError(f"{path}, which the ladder {ladder} trains, is gone: bring it back, or start a new ladder.")
    if own.file and digest_of(path, own.beside) != own.file:
        raise DataError(
            f"{path}{belonging(own.beside)} is not what the ladder {ladder} began with: start a new ladder."
        )


def _opened(
    asked: LadderRequest, record: LadderRecord, places: Places, say: Say, journal: Journal, outage: Outage
) -> Ladder:
    plan = plan_of(asked, record.data, record.device, record.probe)
    again = record.model_copy(update={**ANEW, "left_out": plan.left_out})
    ladder = Ladder(asked, again, plan, places)
    ladder.before = record.turns
    ended = "1 process" if record.turns == 1 else f"{record.turns} processes"
    say(f"Going on with the ladder {record.id} in {ladder.folder}: {ended} had ended.")
    ladder.start(journal)
    return attended(ladder, say, outage)


def _finished(asked: LadderRequest, record: LadderRecord, places: Places) -> Ladder:
    """A ladder that is done, with its comparison as it was."""
    plan = plan_of(asked, record.data, record.device, record.probe)
    ladder = Ladder(asked, record, plan, places)
    _, ladder.runs = load(ladder.folder)
    sides = load_sides(ladder.folder)
    ladder.comparison = sides.warned(compare(record, ladder.runs, sides.traces, sides.advice))
    return ladder


def _held(places: Places, ladder: str) -> Journal:
    """The ladder's journal, which only one process holds.

    Raises:
        RunError: the ladder runs.
        JournalBusyError: a sync that takes long holds it.
    """
    path = places.journal / f"{ladder}.jsonl"
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return Journal(path)
        except JournalBusyError:
            owner = _owner(path)
            if owner is not None and not owner.is_dead():
                raise RunError(
                    f"the ladder {ladder} still runs, as process {owner.pid} of {owner.host}: wait for its end, or "
                    "end it."
                ) from None
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_EVERY_S)


def _owner(journal: Path) -> Owner | None:
    started = [e.run for e in read_journal(journal)[1] if isinstance(e, Started) and e.run.parent is None]
    return open_run("", started[-1].tags).owner if started and "laptime.host" in started[-1].tags else None


def _of_journal(named: str, places: Places) -> Path | None:
    """The folder that a ladder's journal names: `--out` may have put it anywhere."""
    path = places.journal / f"{named}.jsonl"
    if "/" in named or not path.is_file():
        return None
    try:
        starts = [e.run.tags for e in read_journal(path)[1] if isinstance(e, Started) and e.run.parent is None]
    except TrackingError:
        return None
    folder = starts[-1].get("laptime.folder") if starts else None
    return Path(folder) if folder else None


def _of_run(named: str, places: Places) -> Path | None:
    """The folder of the ladder whose run, or a variant's, MLflow shows under this id; asks no server."""
    if not re.fullmatch(r"[0-9a-f]{32}", named):
        return None
    for path in places.journal.glob("*.jsonl"):
        if named in read_state(path).runs.values():
            return find_ladder(path.stem, places)
    return None


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return "nothing" if value in (None, "") else shorten(str(value), 200)
