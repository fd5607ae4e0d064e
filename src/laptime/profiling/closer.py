"""A closer look at a run whose epochs are counted: how it was built, inference, the profile, the machine's ceilings.

All of it stands beside what was timed and saved: what fails here becomes a note, never a failed run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from laptime.catalogue import find_workload
from laptime.engine.setup import describe, samples_of_a_rank
from laptime.host.processes import allowed_cores
from laptime.measure.ceilings import measure_ceilings
from laptime.optimizations.base import ConstantRate, Parts, Recipe
from laptime.profiling.capture import in_one_line
from laptime.profiling.roofline import Work, with_floor, work_or_none
from laptime.profiling.segment import Asked, Segment
from laptime.records import (
    Ceilings,
    EpochRecord,
    InferenceRecord,
    LayoutRecord,
    PassRecord,
    PrecisionRecord,
    ProfileRecord,
    RunRecord,
    SetupRecord,
    ThreadsRecord,
    UpdateRecord,
    write_text,
)
from laptime.records.rates import middle
from laptime.spec import RunSpec, read_schedule

FOLDER = "profile"

T = TypeVar("T")


@dataclass
class Findings:
    """What was found; None and empty where it was not asked for or failed, which a note then says."""

    setup: SetupRecord | None = None
    inference: tuple[InferenceRecord, ...] = ()
    profile: ProfileRecord | None = None
    ceilings: Ceilings = field(default_factory=Ceilings)
    work: list[Work] | None = None
    counted_ms: float | None = None
    notes: list[str] = field(default_factory=list)

    def tried(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """What a piece of work gives, or a note and something else where it fails."""
        try:
            return work()
        except Exception as error:  # whatever the extras meet: they must not cost a run its times
            self.notes.append(f"{what}: {in_one_line(error)}")
            return otherwise

    def added_to(self, record: RunRecord) -> RunRecord:
        """The run's record with what was found."""
        update = {
            "machine": record.machine.model_copy(update={"ceilings": self.ceilings}),
            "setup": self.setup,
            "inference": self.inference,
            "profile": self.profile,
            "notes": (*record.notes, *self.notes),
        }
        return with_floor(record.model_copy(update=update), self.work, self.counted_ms)


def look_first(spec: RunSpec, built: tuple[Parts, Recipe], epochs: Sequence[EpochRecord], found: Findings) -> None:
    """Notes how a run was built and what the machine is known to reach, before anything that may end the process."""
    parts, recipe = built
    marks = {name for epoch in epochs for name in epoch.parts_s}
    found.setup = found.tried("the set-up was not described", lambda: describe(recipe, parts, marks), None)
    found.ceilings = Ceilings(**spec.ceilings)


def look_closer(
    spec: RunSpec, built: tuple[Parts, Recipe], epochs: Sequence[EpochRecord], folder: Path, found: Findings
) -> None:
    """Looks at a run after its counted epochs and after its model was saved, since the profile trains on.  # all ranks

    Args:
        spec: what was run.
        built: its parts and the recipe that they were built from.
        epochs: the counted ones.
        folder: where the record will stand.
        found: takes what is found, so that a run that fails later keeps it.
    """
    world = built[1].world

    def profile() -> None:
        _profile(spec, built, epochs, folder, found)

    # Of all that is there by now nothing is garbage, and much of what a recording leaves: to look for it among a
    # million objects of imports would take a second.
    gc.freeze()
    try:
        if world.size > 1:
            profile()  # others may wait for a rank that fails: all fail
        else:
            found.tried("the closer look was cut short", profile, None)
    finally:
        gc.unfreeze()
    world.barrier()  # the others' next steps would take from what the first one still measures


def _profile(
    spec: RunSpec, built: tuple[Parts, Recipe], epochs: Sequence[EpochRecord], folder: Path, found: Findings
) -> None:
    """Inference in any case, then what the options of the profile ask for; see `look_closer`.  # all ranks"""
    parts, recipe = built
    first = recipe.world.first
    if first:
        found.inference = found.tried("inference was not measured", lambda: _inference(parts, recipe), ())
    if spec.profile != "full":
        return
    found.counted_ms = counted_ms(epochs)
    if parts.driver is not None:
        found.profile = _table_of(parts, spec, folder / FOLDER)
        return
    asked = Asked(read_schedule(spec.profile_schedule), spec.epochs - 1, found.counted_ms, folder / FOLDER)
    found.profile = Segment(parts, recipe, asked).run()
    if first:
        layout = found.tried("memory formats were not compared", lambda: _layouts(recipe), None)
        updates = found.tried("the fused optimizer was not timed", lambda: _updates(spec, parts), None)
        none: tuple[PassRecord, ...] = ()
        passes = found.tried("no other batch was timed", lambda: _passes(spec, built, found), none)
        shorter = found.tried("bf16 was not timed", lambda: _bf16(spec, built, found), None)
        if passes:  # how far two moments are apart shows how far one can be off
            before, again = passes, "no other batch was timed again"
            passes += found.tried(again, lambda: _passes(spec, built, found, before), none)
        threads: tuple[ThreadsRecord, ...] = ()
        threads = found.tried("fewer threads were not timed", lambda: _threads(spec, built, found), threads)
        trials = {"layout": layout, "updates": updates, "passes": passes, "precision": shorter, "threads": threads}
        found.profile = found.profile.model_copy(update=trials)
        found.work = found.tried("the floor was not reckoned", lambda: work_or_none(recipe, parts), None)
        if not spec.ceilings:
            found.ceilings = found.tried("ceilings were not measured", lambda: own_ceilings(parts.device), Ceilings())


def _table_of(parts: Parts, spec: RunSpec, folder: Path) -> ProfileRecord:
    """The table of a trainer with a loop of its own; laptime's segment would show steps that nobody timed."""
    driver, schedule = parts.driver, read_schedule(spec.profile_schedule)
    assert driver is not None
    with torch.random.fork_rng(devices=[parts.device] if parts.device.type == "cuda" else []):
        # At the rate of the last step: a schedule counts its steps and refuses more.
        text = driver.table(replace(parts, schedule=ConstantRate()), spec.epochs - 1, schedule.steps)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{driver.name}.txt", f"{text.strip()}\n")
    return ProfileRecord(
        schedule=str(schedule), notes=(f"its loop is {driver.name}'s, whose own profile is {driver.name}.txt",)
    )


def counted_ms(epochs: Sequence[EpochRecord]) -> float | None:
    """Median step of the kept epochs that are of the last one's kind, milliseconds; as reports show it, without the
    first of each epoch, which waits for its batch.
    """
    last = epochs[-1]
    alike = [e for e in epochs if (e.image_side, e.trained_share) == (last.image_side, last.trained_share)]
    kept = [e for e in alike if e.kept] or alike
    return middle(e.middle_step_ms or None for e in kept)


def own_ceilings(device: torch.device) -> Ceilings:
    """Measures the ceilings in a run that was told of none, with all cores, whatever the run itself uses."""
    threads = torch.get_num_threads()
    torch.set_num_threads(allowed_cores())
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            return measure_ceilings(device)
    finally:
        torch.set_num_threads(threads)
        if device.type == "cuda":
            torch.cuda.empty_cache()


def write_simple(record: RunRecord, folder: Path) -> None:
    """Writes the table of what a run's actions took, where a profile was asked for."""
    if record.spec is None or record.spec.profile == "none" or not record.epochs:
        return
    from laptime.records.simple import simple_table

    text: str = simple_table(record)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    write_text(folder / FOLDER / "simple.txt", text)


def _layouts(recipe: Recipe) -> LayoutRecord | None:
    from laptime.measure.layouts import measure_layouts

    return measure_layouts(recipe, samples_of_a_rank(recipe))


def _updates(spec: RunSpec, parts: Parts) -> UpdateRecord | None:
    from laptime.measure.updates import measure_updates

    return measure_updates(parts.optimizer, parts.device) if _may_join(spec, "fused-optimizer") else None


def _passes(
    spec: RunSpec, built: tuple[Parts, Recipe], found: Findings, before: tuple[PassRecord, ...] = ()
) -> tuple[PassRecord, ...]:
    from laptime.measure.batches import Limits, measure_batches

    if not _may_join(spec, "large-batch"):
        return ()
    if built[1].world.size > 1:
        found.notes.append("no other batch was timed: in a pass ranks exchange gradients, which takes all of them")
        return ()
    memory_mib = found.profile.memory_mib if found.profile else {}
    limits = Limits(found.counted_ms, memory_mib.get("activations"))
    passes: tuple[PassRecord, ...] = measure_batches(*built, spec.epochs - 1, limits, before=before)
    return passes


def _bf16(spec: RunSpec, built: tuple[Parts, Recipe], found: Findings) -> PrecisionRecord | None:
    from laptime.measure.batches import Limits
    from laptime.measure.precision import measure_bf16

    return measure_bf16(*built, spec.epochs - 1, Limits(found.counted_ms)) if _may_join(spec, "bf16") else None


def _threads(spec: RunSpec, built: tuple[Parts, Recipe], found: Findings) -> tuple[ThreadsRecord, ...]:
    from laptime.measure.batches import Limits
    from laptime.measure.threads import measure_threads

    if not _may_join(spec, "threads"):
        return ()
    tried: tuple[ThreadsRecord, ...] = measure_threads(*built, spec.epochs - 1, Limits(found.counted_ms))
    return tried


def _may_join(spec: RunSpec, name: str) -> bool:
    """Whether an optimization could be proposed at all: what it brings need not be known where it could not."""
    refused = spec.data.own.refused if spec.data.own else find_workload(spec.workload).refused
    return name not in refused and name not in {o.name for o in spec.optimizations}


def _inference(parts: Parts, recipe: Recipe) -> tuple[InferenceRecord, ...]:
    from laptime.measure.inference import measure_inference

    found: tuple[InferenceRecord, ...] = tuple(measure_inference(parts, recipe))
    return found
