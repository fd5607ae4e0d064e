"""What is known of a run on its way, and the record of it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from laptime.data.own.opened import OwnData
from laptime.engine.checkpoint import Checkpoints
from laptime.engine.plain import removed_parameters
from laptime.host.turns import NO_TURNS, TurnTaker
from laptime.measure.compiling import CompileWatch
from laptime.measure.machine import machine
from laptime.optimizations.base import Recipe
from laptime.profiling.closer import Findings, write_simple
from laptime.records import PARTIAL, CheckRecord, EpochRecord, RunRecord, StartRecord, Status, write_json
from laptime.spec import OptimizationSpec, RunSpec
from laptime.world import ALONE, World


@dataclass
class Facts:
    """What is known of the run so far; a failed run keeps what it had.

    Attributes:
        optimizations: the spec's, with what an earlier start of a resumed run chose by timing.
        turns: in which it trains beside another one.
        own: the data of a user's own workload, once they are open.
        cautions: what puts its times in doubt.
    """

    started_at: float
    optimizations: tuple[OptimizationSpec, ...]
    checkpoints: Checkpoints
    world: World = ALONE
    turns: TurnTaker = NO_TURNS
    check: CheckRecord | None = None
    own: OwnData | None = None
    recipe: Recipe | None = None
    before: dict[str, float] = field(default_factory=dict)
    flops: float | None = None
    begun: float = field(default_factory=time.perf_counter)
    startup_s: float | None = None
    warmup_s: float | None = None
    watch: CompileWatch | None = None
    syncs: int | None = None
    checkpoint_s: float | None = None
    epochs: list[EpochRecord] = field(default_factory=list)
    found: Findings = field(default_factory=Findings)
    cautions: tuple[str, ...] = ()

    def settled(self) -> tuple[OptimizationSpec, ...]:
        """The optimizations with what transforms chose by timing written out; none before the recipe is made."""
        if self.recipe is None:
            return ()
        chosen = self.recipe.settled
        return tuple(
            OptimizationSpec(name=o.name, options={**o.options, **chosen.get(o.name, {})}) for o in self.optimizations
        )

    def marked(self, epoch: EpochRecord, spec: RunSpec) -> EpochRecord:
        """An epoch of this start: the first after a break says so, and one on other ranks than asked does not count."""
        starts = self.checkpoints.starts
        after_break = bool(self.epochs) and bool(starts) and starts[-1].epoch == len(self.epochs)
        whole = self.world.size == spec.ranks
        return epoch.model_copy(
            update={
                "resumed": after_break,
                "kept": epoch.kept and whole,
                "ranks": None if whole else self.world.size,
            }
        )


def finished(spec: RunSpec, facts: Facts, outcome: tuple[Status, str | None], folder: Path) -> RunRecord:
    """The record with what the closer look has found, its table of actions beside it."""
    record, found = _record(spec, facts, outcome), facts.found
    if facts.world.first:
        found.tried("simple.txt was not written", lambda: write_simple(found.added_to(record), folder), None)
    return found.added_to(record)


def keep(spec: RunSpec, facts: Facts, folder: Path) -> None:
    """Writes what is known beside the record's place: a crash or the time-out may end what comes now."""
    status: Status = "failed" if spec.check else "done"  # nothing is left to be checked
    error = "the process ended before its step was checked." if spec.check else None
    if facts.world.first:
        known = facts.found.added_to(_record(spec, facts, (status, error)))
        facts.found.tried(f"{PARTIAL} was not written", lambda: write_json(folder / PARTIAL, known), None)


def _broken_off(starts: tuple[StartRecord, ...]) -> tuple[str, ...]:
    """A sentence where a run went on after a break: its epochs were timed in several processes."""
    if len(starts) < 2:
        return ()
    said = ", ".join(f"from epoch {s.epoch} on {s.ranks} ranks of {s.nodes} nodes" for s in starts)
    if all(s.ranks == 1 for s in starts):
        said = f"at epoch {', '.join(str(s.epoch) for s in starts[1:])}"
    return (f"the run was broken off and went on from its last checkpoint ({said})",)


def _record(spec: RunSpec, facts: Facts, outcome: tuple[Status, str | None]) -> RunRecord:
    recipe, epochs, starts = facts.recipe, tuple(facts.epochs), facts.checkpoints.starts
    parameters = sum(p.numel() for p in recipe.model.parameters()) if recipe else None
    peaks = [e.peak_memory_mib for e in epochs if e.peak_memory_mib is not None]
    return RunRecord(
        status=outcome[0],
        error=outcome[1],
        spec=spec,
        machine=machine(),
        epochs=epochs,
        before=facts.before,
        check=facts.check,
        settled=facts.settled(),
        ranks=facts.world.size,
        precision=recipe.precision if recipe else "fp32",
        parameters=parameters,
        removed_parameters=removed_parameters(recipe.model) if recipe else 0,
        model_mib=parameters * 4 / 2**20 if parameters else None,
        flops_per_sample=facts.flops,
        startup_s=facts.startup_s,
        warmup_s=facts.warmup_s,
        compile_s=facts.watch.seconds if facts.watch else None,
        compilation=facts.watch.record if facts.watch else None,
        peak_memory_mib=max(peaks) if peaks else None,
        checkpoint_s=facts.checkpoint_s,
        syncs_per_step=facts.syncs,
        started_at=starts[0].started_at if starts else facts.started_at,
        ended_at=time.time(),
        commit=os.environ.get("LAPTIME_COMMIT") or None,
        notes=(*(recipe.notes if recipe else ()), *facts.checkpoints.notes),
        starts=starts,
        cautions=(*facts.cautions, *_broken_off(starts)),
    )
