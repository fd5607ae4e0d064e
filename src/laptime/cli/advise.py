"""`laptime advise RUN|TRACE`: what to change next, of a run or of a trace that anybody exported from torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laptime.cli.bars import bars_are_drawn
from laptime.cli.fetched import fetched_run
from laptime.errors import DataError, RunError, UsageError, shorten

if TYPE_CHECKING:
    from rich.progress import TaskID

    from laptime.records import ProbeRecord, RuleHistory, RunRecord, TraceSummary
    from laptime.trace.reader import Told

    Subject = tuple[RunRecord | None, TraceSummary | None, ProbeRecord | None]

_SCHEMA = re.compile(rb'"schema"\s*:\s*"laptime\.(\w+)/')
_HEAD = 4096
LADDER, COMPARISON, SPEC = "ladder.json", "comparison.json", "spec.json"


def advise(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUN|TRACE", help="A run's folder, record.json or MLflow id, or a trace (.json, .json.gz) of torch."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False,
) -> None:
    """Says what to change, what it should bring, and what that rests on."""
    from laptime.advice import advise as find
    from laptime.advice.text import to_text

    record, trace, probe = read_subject(subject)
    # Of a trace alone nothing has been verified, and opening the store takes longer than reading the trace.
    advice = find(record, trace, _history(record) if record else {}, probe)
    sys.stdout.write((advice.model_dump_json(by_alias=True, indent=1) if as_json else to_text(advice)) + "\n")


def _history(record: RunRecord) -> Mapping[str, RuleHistory]:
    from laptime.places import find_places
    from laptime.tracking.outage import Outage
    from laptime.tracking.rule_history import rule_history

    outage = Outage(lambda text: typer.echo(text, err=True))
    return rule_history(find_places().mlflow_uri, outage, record.machine.fingerprint)


def read_subject(subject: str) -> Subject:
    """Reads what advice is asked for: a run's record, its trace and its ladder's probe, or a trace alone.

    Raises:
        UsageError: it is neither a path nor a run id, or names several variants.
        RunError: the run has no times to advise on.
        DataError: what it names can't be read.
        TrackingError: the tracking store refuses a run id.
    """
    path = Path(subject)
    if path.exists() and not path.is_dir() and not path.is_file():
        raise UsageError(f"{shorten(subject)} is no file but a pipe or a device: write the trace into a file first.")
    if path.is_dir():
        return _read_folder(path)
    if path.exists():
        return _read_file(path)
    if re.fullmatch(r"[0-9a-f]{32}", subject):
        return _fetch(subject)
    raise UsageError(
        f"{shorten(subject)!r} is neither a path nor an MLflow run id: give a trace that torch exported (.json, "
        ".json.gz), a run's folder, a record.json, or the 32 digits of a run."
    )


def _read_file(path: Path) -> Subject:
    from laptime.records import TraceSummary
    from laptime.records.trace import TRACE_SCHEMA
    from laptime.spec import Versioned, read_versioned
    from laptime.trace import summarize

    schema = _SCHEMA.search(_head(path))
    if schema is None and path.name != "record.json":
        with _progress() as told:
            return None, summarize(path, told=told), None
    if schema is not None and schema[1] == b"trace":
        kind = Versioned("summary of a trace", TRACE_SCHEMA, "advise on the trace itself", DataError)
        return None, read_versioned(path, TraceSummary, kind), None
    return _read_run(path)


@contextmanager
def _progress() -> Iterator[Told]:
    """A bar where one can be drawn: a trace of 2 GB takes a minute and more."""
    from laptime.trace.reader import untold

    if not bars_are_drawn():
        yield untold
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def told(what: str, share: float) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=1.0)
            bar.update(tasks[what], completed=share)

        yield told


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_HEAD)


def _read_run(path: Path) -> Subject:
    from laptime.records import read_record

    record = read_record(path)
    if record.status not in ("done", "wrong"):
        raise RunError(
            f"the run in {shorten(str(path))} has status {record.status!r} and no steps to advise on "
            f"({shorten(record.error or 'no reason given')}): run the variant again."
        )
    summary = path.parent / (record.profile.folder if record.profile else "profile") / "breakdown.json"
    return record, (_read_file(summary)[1] if summary.is_file() else None), _probe(path.parent, record)


def _probe(folder: Path, record: RunRecord) -> ProbeRecord | None:
    """What the ladder of a run's folder knows of the machine; it stands beside the folder, or in it where fetched.

    Of a run alone it is what an earlier ladder of this home has found out about the machine and the workload.
    """
    from laptime.compare.model import Comparison
    from laptime.ladder.probing import known_probe
    from laptime.ladder.shown import with_shown
    from laptime.places import find_places
    from laptime.records import read_ladder
    from laptime.spec import Versioned, read_versioned

    kind = Versioned("comparison", "laptime.comparison/1", "compare the ladder again", DataError)
    found = next((p for p in (folder.parent / LADDER, folder / LADDER) if p.is_file()), None)
    try:
        if found is None:
            return known_probe(record, find_places())
        probe, compared = read_ladder(found).probe, found.with_name(COMPARISON)
    except DataError:
        return None
    # None where a ladder has not ended; one of another version may name rungs that this one has not.
    with suppress(DataError, UsageError):
        if compared.is_file():
            return with_shown(
                probe, read_versioned(compared, Comparison, kind), record.spec.variant if record.spec else ""
            )
    return probe


def _read_folder(folder: Path, named: str = "") -> Subject:
    """Reads the one variant in a folder; of several repeats the first that was profiled.

    Args:
        folder: the run's.
        named: how the user named it, where not by the folder.
    """
    from laptime.records import record_paths

    paths = record_paths(folder)
    if not paths:
        raise UsageError(f"no record.json below {shorten(str(folder))}{_instead(folder)}.")
    variants = sorted({re.sub(r"-\d+$", "", str(p.parent)) for p in paths})
    if len(variants) > 1:
        names = ", ".join(Path(v).name for v in variants)
        one = "" if named else f"the folder of one, such as {shorten(paths[0].parent.name)}, or "
        raise UsageError(
            f"{shorten(named or str(folder))} holds {len(variants)} variants ({shorten(names, 300)}): give {one}the "
            "MLflow id of a variant's run."
        )
    profiled = [p for p in paths if (p.parent / "profile" / "breakdown.json").is_file()]
    return _read_run((profiled or paths)[0])


def _instead(folder: Path) -> str:
    """What to do about a folder without a record, as a sentence's end."""
    names = sorted(p.name for p in folder.iterdir() if ".json" in p.suffixes)
    if LADDER in names or SPEC in names:  # its own files are no traces
        return ", since no process in it has ended: run it to its end (a ladder by --resume)"
    return f": give one of its files, such as {shorten(names[0])}" if names else ": give a run's folder or a trace"


def _fetch(run: str) -> Subject:
    with fetched_run(run) as folder:
        return _read_folder(folder, f"the run {run}")
