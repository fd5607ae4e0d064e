"""`latest.json` beside the checkpoints of a run: which they are, and of which run."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from laptime.errors import DataError
from laptime.parsing import other_schema, parse_json
from laptime.records import Readable, StartRecord
from laptime.spec import explain

CHECKPOINT_SCHEMA: Literal["laptime.checkpoint/1"] = "laptime.checkpoint/1"
POINTER = "latest.json"


class Written(Readable):
    """A checkpoint as the pointer names it: `epochs` are those that it has behind it."""

    name: Annotated[str, Field(pattern=r"^checkpoint-[0-9]\.pt$")]
    sha256: str
    epochs: Annotated[int, Field(ge=1)]


class Pointer(Readable):
    """What `latest.json` holds: which run this is, its checkpoints, the newest first, and each of its starts."""

    schema_: Literal["laptime.checkpoint/1"] = Field(default=CHECKPOINT_SCHEMA, alias="schema")
    spec: str
    written: tuple[Written, ...] = ()
    starts: tuple[StartRecord, ...] = ()

    def body(self) -> bytes:
        """As it is written."""
        return (json.dumps(self.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()


def parse_pointer(text: bytes, place: str) -> Pointer:
    """Reads one; raises DataError, with `place` as its name."""
    try:
        fields = parse_json(text)
        found = fields.get("schema") if isinstance(fields, dict) else None
        if found != CHECKPOINT_SCHEMA:
            remedy = "go on with the version that wrote it, or remove the checkpoints"
            raise DataError(f"{place} {other_schema(found, CHECKPOINT_SCHEMA, remedy)}")
        return Pointer.model_validate(fields)
    except ValidationError as error:
        raise DataError(f"{place} is not valid: {explain(error)}; remove the checkpoints to start anew.") from error
    except ValueError as error:
        raise DataError(f"{place} is damaged ({error}): remove the checkpoints to start anew.") from error
