"""The process of one turn: its spec and its folder, and the record that an earlier start of the ladder left there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laptime.errors import DataError
from laptime.ladder.counted import short
from laptime.ladder.request import make_spec
from laptime.launchers.base import RECORD
from laptime.records import SEARCH, TRIALS, VERIFY, RunRecord, read_record
from laptime.runstore import CHECKPOINTS
from laptime.spec import RunSpec
from laptime.tracking import Journal
from laptime.tracking.publish import run_folder
from laptime.variants import Variant

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn

# At most so many seconds of writing checkpoints for each second of training: with epochs of seconds that is one after
# each, and only where a checkpoint takes twice as long as an epoch are some left out; and the last, unless it is cheap.
_SHARE = 2.0


@dataclass(frozen=True)
class Process:
    """What a turn starts."""

    turn: Turn
    spec: RunSpec
    folder: Path

    def left_before(self, ended: int) -> RunRecord | None:
        """The record that this very process left at an earlier start of its ladder; None where it has to run.

        A failure stands where a later turn had ended. What failed last may have failed with the ladder, of a
        full disk for one, and is tried again.

        Args:
            ended: turns that had ended then.
        """
        for folder in self._folders():
            try:
                record = read_record(folder / RECORD)
            except DataError:  # none, or cut off
                continue
            if same(record.spec, self.spec) and (record.status in ("done", "wrong") or self.turn.number < ended):
                return record
        return None

    def clear(self) -> None:
        """Removes the checkpoints of a process that has ended: nothing goes on from them any more."""
        shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)

    def _folders(self) -> Iterator[Path]:
        yield self.folder
        if self.turn.kind == "round" and self.turn.repeat == 0:
            yield from retracted(self.folder.parent, self.turn.variant)


def process_of(ladder: Ladder, turn: Turn, variant: Variant) -> Process:
    """What a turn of a ladder starts."""
    spec = make_spec(ladder.request, variant, ladder.record.data, turn.repeat)
    ceilings = ladder.record.probe.machine.ceilings.model_dump(exclude_none=True)
    settled = {"ceilings": ceilings, "epochs": ladder.preset.epochs}
    spec, folder = spec.model_copy(update=settled), run_folder(ladder.folder, turn.variant, turn.repeat)
    if turn.kind != "round":
        # What no turn of the ladder has checked against the baseline is checked in its first round.
        new = turn.kind in ("verify", "search") and turn.repeat == 0 and turn.variant not in ladder.variants
        epochs = _epochs(turn, spec, short(ladder))
        spec = spec.model_copy(update={"check": new, "save_model": False, "epochs": epochs, "profile": "none"})
        aside = {"trial": TRIALS, "search": SEARCH}.get(turn.kind, VERIFY)
        folder = run_folder(ladder.folder / aside, turn.variant, turn.number)
    # Pods have theirs in the run store; a pair that was broken off begins anew, since its epochs belong together.
    if ladder.request.launcher != "kubernetes" and not turn.beside:
        kept = {"checkpoints": str(folder / CHECKPOINTS), "checkpoint_share": _SHARE}
        spec = spec.model_copy(update=kept)
    return Process(turn, spec, folder)


# Epochs of a run with one of them differ by design.
_UNEVEN = ("progressive-resizing", "selective-backprop")


def _epochs(turn: Turn, spec: RunSpec, few: int) -> int:
    """Few tell a time, except where they differ by design; by turns each side is once the first. Quality takes all."""
    if turn.kind == "training" or any(spec.option(name) is not None for name in _UNEVEN):
        return spec.epochs
    return turn.epochs or (few if turn.beside else min(spec.epochs, few))


def retracted(ladder: Path, variant: str, number: int | None = None) -> list[Path]:
    """Where the processes of a retracted variant stand: all that are there, or the place of the one of a turn."""
    place = run_folder(ladder / TRIALS, f"{variant}-retracted", number or 0)
    if number is not None:
        return [place]
    return sorted(place.parent.glob(f"{place.name.removesuffix('-0')}-[0-9]*"))


def set_aside(ladder: Path, name: str, number: int, journal: Journal | None) -> None:
    """Moves the first process of a retracted variant to its place, and has the journal look for it there."""
    (target,) = retracted(ladder, name, number)
    target.parent.mkdir(exist_ok=True)
    if not target.exists():  # as it does where the ladder is gone on with
        place = run_folder(ladder, name, 0)
        if journal is not None:
            journal.move(place, target)
        place.rename(target)


def same(left: RunSpec | None, asked: RunSpec) -> bool:
    """Whether a record is of the process that is asked for: the same training from the same seed, as one repeat."""
    if left is None:
        return False
    return (left.digest(), left.seed, left.repeat) == (asked.digest(), asked.seed, asked.repeat)
