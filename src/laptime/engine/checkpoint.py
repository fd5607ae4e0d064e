"""Checkpoints of one run: written after each counted epoch, found again by a worker that is started with the same spec.

A checkpoint is one file; `latest.json` names the last two with their SHA-256, newest first, and is written after the
file that it names. Files take turns in three names, so that both that it names are whole at any moment, and nothing
ever has to be deleted. Nothing is unpickled but tensors and plain values (`weights_only`).
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter, ValidationError

from laptime.catalogue import options_of
from laptime.data.objects import Objects, open_objects
from laptime.engine.state import State, put_back, state_of
from laptime.errors import DataError, RunError, shorten
from laptime.optimizations.base import Parts
from laptime.parsing import other_schema, parse_json
from laptime.records import EpochRecord, Readable, StartRecord
from laptime.spec import OptimizationSpec, RunSpec, explain
from laptime.world import World

CHECKPOINT_SCHEMA: Literal["laptime.checkpoint/1"] = "laptime.checkpoint/1"
POINTER = "latest.json"
_NAMES, _KEPT = 3, 2

_EPOCHS = TypeAdapter(tuple[EpochRecord, ...])
_OPTIMIZATIONS = TypeAdapter(tuple[OptimizationSpec, ...])


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


@dataclass(frozen=True)
class Found:
    """Where a run goes on.

    Attributes:
        epochs: those that it has behind it.
        optimizations: the spec's, with what transforms chose by timing in the run's first start.
        state: see `engine.state`.
    """

    epochs: tuple[EpochRecord, ...]
    optimizations: tuple[OptimizationSpec, ...]
    state: State

    def put_into(self, parts: Parts) -> None:
        """Goes on from here; after the warm-up, whose reset would take it back."""
        put_back(parts, self.state)


class Checkpoints:
    """The checkpoints of a run; of one that has none, nothing is found and nothing written.

    Attributes:
        starts: each start of the run so far, this one with them; empty where there are no checkpoints.
        notes: what the user should know.
    """

    def __init__(self, spec: RunSpec, world: World) -> None:
        self._spec, self._identity, self._world = spec, identity(spec), world
        self._place: Objects | None = None
        self._pointer = Pointer(spec=self._identity)
        self.notes: list[str] = []
        self._last_s = self._unsaved_s = 0.0  # of writing the last one; of training since then

    @property
    def starts(self) -> tuple[StartRecord, ...]:
        return self._pointer.starts

    def find(self) -> Found | None:
        """The newest checkpoint that is whole, and a note of this start; None where there is none.  # all ranks

        The first rank reads and the others get it from there, so that all go on from the same one.

        Raises:
            UsageError: the place's address is of an unknown kind.
            DataError: the place can't be read, or holds checkpoints of another run or version.
            UnreachableError: it does not answer.
            RunError: the ranks have become others, and the batch is so many by rank.
        """
        if self._spec.checkpoints is None:
            return None
        self._place = open_objects(self._spec.checkpoints)
        body = self._read(self._place) if self._world.first else None
        body, self._pointer = self._world.agreed((body, self._pointer))
        found = None if body is None else self._unpacked(body)
        self._check_batch(found)
        start = StartRecord(
            epoch=len(found.epochs) if found else 0,
            ranks=self._world.size,
            nodes=self._world.nodes,
            started_at=time.time(),
        )
        # One of which no epoch is left has timed nothing, as where it was ended in its warm-up.
        before = tuple(s for s in self._pointer.starts if s.epoch < start.epoch)
        self._pointer = self._pointer.model_copy(update={"starts": (*before, start)})
        if self._world.first:
            try:
                self._place.write(_json(self._pointer), POINTER)
            except DataError as error:  # a place that is full or read-only costs the checkpoints, not the run
                self.notes.append(f"this start was not noted beside its checkpoints: {error}")
        return found

    def keep(self, parts: Parts, epochs: Sequence[EpochRecord], settled: Sequence[OptimizationSpec]) -> EpochRecord:
        """Writes a checkpoint after the last of `epochs`; returns that epoch with the seconds that it took.

        One that can't be written costs a note, not the run: the one before it stays. One that costs more than
        the spec's share of the training since the one before it is left out.
        """
        last = epochs[-1]
        if self._place is None or not self._world.first:
            return last
        self._unsaved_s += last.epoch_s
        share = self._spec.checkpoint_share
        if share is not None and self._last_s > share * self._unsaved_s:
            return last
        begin = time.perf_counter()
        name = f"checkpoint-{len(epochs) % _NAMES}.pt"
        drawn = random.getstate()  # a transfer that is tried again draws its pauses: no affair of the training
        try:
            body = _packed(parts, epochs, settled)
            new = Written(name=name, sha256=hashlib.sha256(body).hexdigest(), epochs=len(epochs))
            pointer = self._pointer.model_copy(update={"written": (new, *self._pointer.written)[:_KEPT]})
            self._place.write(body, name)
            self._place.write(_json(pointer), POINTER)
        except Exception as error:  # a user's own optimizer may hold what no pickle takes, and raise what it likes
            self.notes.append(f"no checkpoint was written after epoch {last.index}: {_reason(error)}")
            return last
        finally:
            random.setstate(drawn)
        self._pointer = pointer
        self._last_s, self._unsaved_s = time.perf_counter() - begin, 0.0
        return last.model_copy(update={"checkpoint_s": self._last_s})

    def _unpacked(self, body: bytes) -> Found | None:
        """What a checkpoint holds; in a ladder, whose user asked for none, one that is refused costs a note."""
        try:
            return _unpacked(body)
        except DataError as error:
            if self._spec.checkpoint_share is None:
                raise
            self.notes.append(f"the run began anew: {error}")
            self._pointer = self._pointer.model_copy(update={"written": ()})
            return None

    def _check_batch(self, found: Found | None) -> None:
        """Refuses to go on with another batch and another schedule, as weak scaling would on other ranks."""
        before = self.starts[-1].ranks if self.starts else self._world.size
        weak = any(options_of(o).get("scaling") == "weak" for o in self._spec.optimizations)
        if found is not None and weak and before != self._world.size:
            raise RunError(
                f"{self._spec.variant} has a batch by rank (scaling=weak) and trained on {before} ranks, but now there "
                f"are {self._world.size}: give it {before} ranks again, or take scaling=strong."
            )

    def _read(self, place: Objects) -> bytes | None:
        text = place.read(POINTER)
        if text is None:
            return None
        self._pointer = _parsed(text, f"{place.url}/{POINTER}")
        if self._pointer.spec != self._identity:
            raise DataError(
                f"the checkpoints at {place.url} are of another run (spec {self._pointer.spec[:12]}, this one is "
                f"{self._identity[:12]}): give a place of this run's own, or remove them."
            )
        for written in self._pointer.written:
            body = place.read(written.name)
            if body is not None and hashlib.sha256(body).hexdigest() == written.sha256:
                self._pointer = self._pointer.model_copy(update={"written": (written,)})
                return body
            what = "missing" if body is None else "damaged"
            self.notes.append(f"the checkpoint after {written.epochs} epochs at {place.url} is {what}: not used")
        return None


def identity(spec: RunSpec) -> str:
    """SHA-256 of what decides a run's trajectory: checkpoints of another one are refused."""
    file = spec.data.own.file if spec.data.own else ""
    return hashlib.sha256(f"{spec.digest()} {spec.seed}{file}".encode()).hexdigest()


def _packed(parts: Parts, epochs: Sequence[EpochRecord], settled: Sequence[OptimizationSpec]) -> bytes:
    held: dict[str, Any] = {
        "schema": CHECKPOINT_SCHEMA,
        "epochs": _EPOCHS.dump_json(tuple(epochs)).decode(),
        "optimizations": _OPTIMIZATIONS.dump_json(tuple(settled)).decode(),
        "state": state_of(parts),
    }
    file = io.BytesIO()
    torch.save(held, file)  # waits for the device
    return file.getvalue()


def _unpacked(body: bytes) -> Found:
    """Reads a checkpoint; raises DataError where it is no such file, though its checksum is right."""
    try:
        held = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
        if held["schema"] != CHECKPOINT_SCHEMA:
            remedy = "go on with the version that wrote it, or remove it"
            raise DataError(f"the checkpoint {other_schema(held['schema'], CHECKPOINT_SCHEMA, remedy)}")
        epochs = _EPOCHS.validate_json(held["epochs"])
        return Found(epochs, _OPTIMIZATIONS.validate_json(held["optimizations"]), held["state"])
    except DataError:
        raise
    except Exception as error:  # torch.load raises half a dozen unrelated types for a broken or unsafe file
        raise DataError(f"the checkpoint can't be read ({_reason(error)}): remove it to start anew.") from error


def _reason(error: Exception) -> str:
    return shorten(" ".join(str(error).split()) or type(error).__name__, 300)


def _parsed(text: bytes, place: str) -> Pointer:
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


def _json(pointer: Pointer) -> bytes:
    return (json.dumps(pointer.model_dump(mode="json", by_alias=True), indent=1) + "\n").encode()
