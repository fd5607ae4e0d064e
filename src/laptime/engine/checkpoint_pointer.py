"""`latest.json` beside the checkpoints of a run: which they are, of which run, and which of its starts writes it."""

from __future__ import annotations

import json
import time
from typing import Annotated, Literal

import torch
from pydantic import Field, ValidationError

from laptime.data.objects import Objects
from laptime.devices import host
from laptime.errors import DataError, RunError, UnreachableError
from laptime.parsing import other_schema, parse_json
from laptime.records import Readable, StartRecord
from laptime.spec import explain
from laptime.world import World

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


class FollowedError(RunError):
    """Another start of the run goes on from its checkpoints."""

    def __init__(self, place: Objects) -> None:
        super().__init__(f"another start of this run goes on at {place.url}")


class Claim:
    """One start's hold on the pointer: from its first write, which takes it over, until another start has written it.

    A process that was given up (its host was cut off, say) may still run when its run goes on elsewhere.

    Args:
        place: where the pointer stands.
    """

    def __init__(self, place: Objects) -> None:
        self._place = place
        self._own: set[bytes] = set()  # what this start has written, or may have; empty until it takes over

    def check(self) -> str | None:
        """Looks whether another start has written the pointer since this one took it over.

        Returns:
            The mark of what stands there, for `swap`.

        Raises:
            DataError: it can't be read.
            FollowedError: another start has.
        """
        there, mark = self._place.seen(POINTER) if self._own else (None, None)
        if there is not None and there not in self._own:
            raise FollowedError(self._place)
        return mark

    def write(self, pointer: Pointer) -> None:
        """Writes it; whoever writes for the first time takes it over.

        Raises:
            DataError: it can't be written.
            UnreachableError: that, or an earlier write, whose answer was lost, came in between.
            FollowedError: another start has written it.
        """
        body = pointer.body()
        if self._own:
            self._swap(body)
        else:
            self._place.write(body, POINTER)
        self._own = {body}

    def _swap(self, body: bytes) -> None:
        mark = self.check()
        self._own.add(body)  # before: it may arrive where the answer does not
        if not self._place.swap(body, POINTER, mark):
            self.check()
            raise UnreachableError(f"{self._place.url}/{POINTER} was being written by an earlier try.")


def this_start(epoch: int, world: World) -> StartRecord:
    """This process's start, from an epoch on, with what may round sums otherwise than in another start."""
    here = host()
    return StartRecord(
        epoch=epoch,
        ranks=world.size,
        nodes=world.nodes,
        started_at=time.time(),
        torch=torch.__version__,
        cpu=here.cpu,
        cores=here.cores,
    )


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
