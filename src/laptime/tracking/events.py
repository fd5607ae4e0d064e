"""The journal's lines, as data: one JSON object a line, the first one a header with the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from laptime.errors import TrackingError, shorten
from laptime.parsing import other_schema, parse_json
from laptime.tracking.base import RunStart, RunStatus

JOURNAL_SCHEMA = "laptime.journal/1"

Row = tuple[str, float, int, float]


class Line(BaseModel):
    """Base of the lines. JSON has no NaN: such values are written as words and read back as numbers."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, ser_json_inf_nan="strings")


class Header(Line):
    """The first line; `target` is the store that it is meant for (see `sync.target_of`), None for any."""

    schema_: str = Field(default=JOURNAL_SCHEMA, alias="schema")
    target: str | None = None


class Started(Line):
    """A run was started."""

    event: Literal["start"] = "start"
    run: RunStart


class Measured(Line):
    """Metrics came in: rows of name, value, step and time."""

    event: Literal["metrics"] = "metrics"
    key: str
    rows: tuple[Row, ...]


class Tagged(Line):
    """Tags were set."""

    event: Literal["tags"] = "tags"
    key: str
    tags: dict[str, str]


class Noted(Line):
    """The description was set."""

    event: Literal["note"] = "note"
    key: str
    markdown: str


class Filed(Line):
    """A file or a folder of files was added."""

    event: Literal["artifact"] = "artifact"
    key: str
    path: Path
    folder: str = ""


class Modelled(Line):
    """A trained model stands in a folder."""

    event: Literal["model"] = "model"
    key: str
    folder: Path


class Ended(Line):
    """A run was ended."""

    event: Literal["end"] = "end"
    key: str
    status: RunStatus
    ended_at: float


class Moved(Line):
    """A folder was about to be moved: files of earlier lines stand there now, and its old name is free for others."""

    event: Literal["moved"] = "moved"
    path: Path
    to: Path


Event = Started | Measured | Tagged | Noted | Filed | Modelled | Ended | Moved

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def read_journal(path: Path) -> tuple[Header, list[Event]]:
    """Reads a journal, its files by the places where they stand now.

    A last line that was cut off, by a crash or a full disk, is left out.

    Raises:
        TrackingError: it can't be read, is of another version or is damaged before its last line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise TrackingError(f"the journal {path} can't be read: {error}.") from error
    # What stands behind the last line's end was never finished, even where it happens to be whole.
    whole = lines[:-1]
    if not whole:
        return Header(), []
    try:
        _check(path, whole[0])
        return Header.model_validate_json(whole[0]), _placed([_EVENT.validate_json(line) for line in whole[1:]])
    except ValidationError as error:
        raise TrackingError(
            f"the journal {path} is damaged ({error.error_count()} findings, first: "
            f"{shorten(error.errors()[0]['msg'])}): move it out of the folder to go on without it."
        ) from error


def _placed(events: list[Event]) -> list[Event]:
    moves: list[Moved] = []  # of later lines, the next one first
    placed: list[Event] = []
    for event in reversed(events):
        if isinstance(event, Moved):
            moves.insert(0, event)
        placed.append(_after(moves, event) if isinstance(event, Filed) else event)
    return placed[::-1]


def _after(moves: list[Moved], filed: Filed) -> Filed:
    path = filed.path
    for move in moves:
        if path.is_relative_to(move.path):
            path = move.to / path.relative_to(move.path)
    return filed.model_copy(update={"path": path})


def _check(path: Path, first: bytes) -> None:
    """Refuses another version, and a journal whose first line is lost: an event must not pass for a header."""
    try:
        fields = parse_json(first)
    except ValueError as error:
        raise TrackingError(
            f"the journal {path} is damaged in its first line ({error}): move it out of the folder to go on without it."
        ) from error
    found = fields.get("schema") if isinstance(fields, dict) else None
    if found != JOURNAL_SCHEMA:
        remedy = "run laptime sync with the version that wrote it, or move it out of the folder to go on without it"
        raise TrackingError(f"the journal {path} {other_schema(found, JOURNAL_SCHEMA, remedy)}")
