"""What all launchers share: hooks, file names, the record of a run that left none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laptime.errors import LaptimeError
from laptime.parsing import parse_json
from laptime.records import PARTIAL, RunRecord, read_record, write_json
from laptime.spec import RunSpec

SPEC, RECORD, LOG, PROGRESS = "spec.json", "record.json", "log.txt", "progress.jsonl"


def ignore(_: Any) -> None:
    """A hook that does nothing."""


@dataclass(frozen=True)
class Hooks:
    """What a caller wants to hear.

    Attributes:
        on_line: each line of the trainer's output.
        on_event: each progress event of the worker: phase, step, epoch.
        say: what the user should know, a sentence.
        samples: whether the machine is sampled meanwhile.
    """

    on_line: Callable[[str], None] = ignore
    on_event: Callable[[dict[str, Any]], None] = ignore
    say: Callable[[str], None] = ignore
    samples: bool = True


def prepare(spec: RunSpec, folder: Path, *stale: str) -> tuple[str, str]:
    """Makes a run's folder as its processes are to find it: with the spec, and without what an earlier try has left.

    Args:
        spec: what is run.
        folder: its own.
        stale: files of an earlier try besides those that every launcher leaves.

    Returns:
        The places of spec and record, as words for a command.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (RECORD, PARTIAL, LOG, PROGRESS, *stale):
        (folder / name).unlink(missing_ok=True)
    write_json(folder / SPEC, spec)
    return str(folder / SPEC), str(folder / RECORD)


def failed(spec: RunSpec, error: str) -> RunRecord:
    """The record of a run whose worker could not write one."""
    return RunRecord(status="failed", error=error, spec=spec)


def salvaged(spec: RunSpec, folder: Path, why: str) -> RunRecord:
    """The record of a run whose processes ended too early, with all that they had measured.

    Times that were still to be checked are kept and not believed; where nothing was, the run is done and a note
    says what it lacks.

    Args:
        spec: what was run.
        folder: where the worker may have left what it knew.
        why: how the processes ended, one sentence.
    """
    try:
        known = read_record(folder / PARTIAL)
    except LaptimeError:  # it never came so far
        return failed(spec, why)
    phase = _last_phase(folder / PROGRESS)
    said = f"{why.rstrip('.')} (it ended in the {phase}, after its counted epochs"
    said += "; --no-profile leaves the profile out" if phase == "profile" else ""
    if known.status == "done":
        return known.model_copy(update={"notes": (*known.notes, f"{said}).")})
    return known.model_copy(update={"error": f"{said}; times that were not checked do not count)."})


def _last_phase(progress: Path) -> str:
    phases = [str(e.get("phase")) for e in ProgressReader(progress).events() if e.get("event") == "phase"]
    return phases[-1] if phases else "unknown phase"


def with_cautions(record: RunRecord, cautions: tuple[str, ...]) -> RunRecord:
    """The record with what its launcher saw that puts its times in doubt."""
    return record.model_copy(update={"cautions": (*record.cautions, *cautions)})


class ProgressReader:
    """Follows a worker's progress.jsonl; a line that is still being written waits for the next look.

    Nothing depends on an event, so a line that a full disk or another hand has spoilt is passed over.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def events(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        return [event for line in whole.splitlines() if (event := event_of(line))]


def event_of(line: bytes) -> dict[str, Any] | None:
    """A line of progress; None for one that is none."""
    try:
        event = parse_json(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
