"""Checkpoints of one run: written after each counted epoch, found again by a worker that is started with the same spec.

A checkpoint is one file; `latest.json` names the last two with their SHA-256, newest first, and is written after the
file that it names. Files take turns in three names, so that both that it names are whole at any moment, and nothing
ever has to be deleted. Nothing is unpickled but tensors and plain values (`weights_only`).
"""

from __future__ import annotations

import hashlib
import io
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import TypeAdapter

from laptime.catalogue import options_of
from laptime.data.objects import Objects, open_objects, patiently
from laptime.engine.checkpoint_pointer import (
    CHECKPOINT_SCHEMA,
    POINTER,
    Claim,
    FollowedError,
    Pointer,
    Written,
    parse_pointer,
    this_start,
)
from laptime.engine.state import State, put_back, state_of
from laptime.errors import DataError, RunError, UnreachableError, shorten
from laptime.host.output import say
from laptime.optimizations.base import Parts
from laptime.parsing import other_schema
from laptime.records import EpochRecord, StartRecord
from laptime.spec import OptimizationSpec, RunSpec
from laptime.world import World, started_again

_NAMES, _KEPT = 3, 2
# By how much the spec's share is less after a run's last epoch.
_ENDING = 20
# How long a place that is away is waited for. Before a run that nobody starts again begins without; and before one that
# its launcher starts again fails: longer, since that uses up a restart, and shorter than ranks wait for each other.
_PATIENCE_S, _WATCHED_PATIENCE_S = 60.0, 120.0

_EPOCHS = TypeAdapter(tuple[EpochRecord, ...])
_OPTIMIZATIONS = TypeAdapter(tuple[OptimizationSpec, ...])


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
        put_back(parts, self.state, (self.epochs[-1].index + 1) * len(parts.loader))


class CheckpointsAwayError(UnreachableError):
    """Nobody knows from where to go on: the launcher's to start again, and no outcome of the run."""


class Checkpoints:
    """The checkpoints of a run; of one that has none, nothing is found and nothing written.

    Attributes:
        starts: each start of the run so far, this one with them; empty where there are no checkpoints.
        notes: what the user should know; each was said in the log, too, should the run never come to its record.
    """

    def __init__(self, spec: RunSpec, world: World) -> None:
        self._spec, self._identity, self._world = spec, identity(spec), world
        self._place: Objects | None = None
        self._pointer = Pointer(spec=self._identity)
        self._claim: Claim | None = None
        self.notes: list[str] = []
        self._last_s = self._unsaved_s = 0.0  # of writing the last one; of training since then
        self._unseen = False  # the place was away or full when the run began: what it holds now may be ahead

    @property
    def starts(self) -> tuple[StartRecord, ...]:
        return self._pointer.starts

    def find(self) -> Found | None:
        """The newest checkpoint that is whole, and a note of this start; None where there is none.  # all ranks

        The first rank reads and the others get it from there, so that all go on from the same one.

        Raises:
            UsageError: the place's address is of an unknown kind.
            DataError: the place can't be read, or holds checkpoints of another run or version.
            UnreachableError: it has not answered for long, and there is, or may be, what the run has to go on from. A
                run that nobody starts again begins anew, with a note, where it is not known whether there is.
            RunError: the ranks have become others, and the batch is so many by rank.
        """
        if self._spec.checkpoints is None:
            return None
        self._place = open_objects(self._spec.checkpoints)
        self._claim = Claim(self._place)
        body = self._waited_for(self._place) if self._world.first else None
        body, self._pointer = self._world.agreed((body, self._pointer))
        found = None if body is None else self._unpacked(body)
        self._check_batch(found)
        start = this_start(len(found.epochs) if found else 0, self._world)
        # One of which no epoch is left has timed nothing, as where it was ended in its warm-up.
        before = tuple(s for s in self._pointer.starts if s.epoch < start.epoch)
        if changed := dict.fromkeys(difference for s in before for difference in s.differences(start)):
            self._note(f"{'; '.join(changed)}: losses since the break may differ from those of a run without one")
        self._pointer = self._pointer.model_copy(update={"starts": (*before, start)})
        if self._world.first and not self._unseen:
            try:
                self._claim.write(self._pointer)
            except DataError as error:  # a place that is full or read-only costs the checkpoints, not the run
                self._note(f"this start was not noted beside its checkpoints: {error}")
                self._unseen = True
        return found

    def keep(self, parts: Parts, epochs: Sequence[EpochRecord], settled: Sequence[OptimizationSpec]) -> EpochRecord:
        """Writes a checkpoint after the last of `epochs`; returns that epoch with the seconds that it took.

        One that can't be written costs a note, not the run: the one before it stays. One that costs more than
        the spec's share of the training since the one before it is left out; after the last epoch, when next to nothing
        is left to be broken off, a small part of that share.
        """
        last = epochs[-1]
        if self._place is None or self._claim is None or not self._world.first:
            return last
        self._unsaved_s += last.epoch_s
        share = self._spec.checkpoint_share
        if share is not None and len(epochs) == self._spec.epochs and self._last_s > share / _ENDING * self._unsaved_s:
            return last
        if share is not None and self._last_s > share * self._unsaved_s:
            self._note(
                f"checkpoints were left out, each of which takes over {share:g} times the training since the last"
            )
            return last
        begin = time.perf_counter()
        drawn = random.getstate()  # a transfer that is tried again draws its pauses: no affair of the training
        try:
            if self._unseen and not self._overtakes(self._place, len(epochs)):
                return last
            self._claim.check()
            name = self._free_name(len(epochs))
            body = _packed(parts, epochs, settled)
            new = Written(name=name, sha256=hashlib.sha256(body).hexdigest(), epochs=len(epochs))
            pointer = self._pointer.model_copy(update={"written": (new, *self._pointer.written)[:_KEPT]})
            self._place.write(body, name)
            self._claim.write(pointer)
        except FollowedError as followed:
            self._note(f"{followed}: this one writes no checkpoints any more")
            self._place = None
            return last
        except Exception as error:  # a user's own optimizer may hold what no pickle takes, and raise what it likes
            self._note(f"no checkpoint was written after epoch {last.index}: {_reason(error)}")
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
            self._note(f"the run began anew: {error}")
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

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            if self._world.first:
                say(text)

    def _waited_for(self, place: Objects) -> bytes | None:
        """What `_read` finds once the place answers; None where it does not, and there may be nothing."""
        watched = started_again()
        patience_s = _WATCHED_PATIENCE_S if watched else _PATIENCE_S
        try:
            return patiently(lambda: self._read(place), patience_s, say)
        except UnreachableError as error:
            if watched or self._pointer.written:
                kind = CheckpointsAwayError if watched else UnreachableError
                raise kind(
                    f"{error} It was asked for {patience_s:.0f} s where the run has come to: start it again when it "
                    "answers."
                ) from error
            self._unseen = True
            self._note(f"the run began anew without seeing whether it has checkpoints: {error}")
            return None

    def _overtakes(self, place: Objects, epochs: int) -> bool:
        """Whether a run that began without seeing its checkpoints is further than all that stand there; or raises."""
        text = place.read(POINTER)
        there = Pointer(spec=self._identity) if text is None else self._own(text, place)
        if any(start.started_at > self.starts[-1].started_at for start in there.starts):
            raise FollowedError(place)
        if there.written and (ahead := there.written[0].epochs) >= epochs:
            self._note(
                f"the checkpoint after {ahead} epochs that was seen at {place.url} later is kept: none is "
                "written before this run has more"
            )
            return False
        self._pointer, self._unseen = self._pointer.model_copy(update={"written": there.written}), False
        return True

    def _free_name(self, epochs: int) -> str:
        """The next name in turn that the pointer does not name: where some were left out, the next may be the last."""
        taken = {written.name for written in self._pointer.written}
        names = (f"checkpoint-{turn % _NAMES}.pt" for turn in range(epochs, epochs + _NAMES))
        return next(name for name in names if name not in taken)

    def _own(self, text: bytes, place: Objects) -> Pointer:
        """The pointer, if it is of this run; raises DataError."""
        pointer = parse_pointer(text, f"{place.url}/{POINTER}")
        if pointer.spec != self._identity:
            raise DataError(
                f"the checkpoints at {place.url} are of another run (spec {pointer.spec[:12]}, this one is "
                f"{self._identity[:12]}): give a place of this run's own, or remove them."
            )
        return pointer

    def _read(self, place: Objects) -> bytes | None:
        text = place.read(POINTER)
        if text is None:
            return None
        self._pointer = self._own(text, place)
        for written in self._pointer.written:
            body = place.read(written.name)
            if body is not None and hashlib.sha256(body).hexdigest() == written.sha256:
                self._pointer = self._pointer.model_copy(update={"written": (written,)})
                return body
            what = "missing" if body is None else "damaged"
            self._note(f"the checkpoint after {written.epochs} epochs at {place.url} is {what}: not used")
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
