"""What `scripts/bench gpu` runs, the most important first, and what it has to leave out."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from laptime.catalogue import COMPILE_RUNGS, STATISTICAL, find_preset, find_workload
from laptime.ladder.plan import Plan, make_plan, rung_of, tried_rungs, unfit
from laptime.ladder.probing import probe_slow_rungs
from laptime.places import find_places
from laptime.records import ProbeRecord, Rung
from laptime.variants import Variant, baseline_of, resolve, without

PHASES = ("headline", "compiled", "seeds", "profiles", "parts", "peers", "rungs")
# Scripts of others' hands, by workload.
PEERS = {"cifar": ("peer-expert", "peer-tutorial")}
# At the baseline's pace, for comparison alone.
_SLOW = ("lightning",)
# What has to be left of the budget for a process to begin whose variant has not run yet, and the most it may take, of
# which the optimized variants have twice: a compiler runs once more for their check. Seconds on one H100, estimated.
_NEEDS_S, _LIMIT_S = 25.0, 75.0
# Epochs of what the baseline's pace makes long.
_LONG_EPOCHS = 1


@dataclass(frozen=True)
class Step:
    """One process.

    Attributes:
        phase: one of PHASES, by which it is asked for.
        rung: its variant's place in the ladder.
        repeat: of the variant, and so its seed.
        epochs: counted ones.
        check: whether its step is compared with the baseline's.
        profile: whether steps are recorded after its counted epochs.
        needs_s: with less of the budget left it is not begun, unless its variant has shown what it takes.
        limit_s: after which it is ended.
    """

    phase: str
    variant: Variant
    rung: Rung
    epochs: int
    repeat: int = 0
    check: bool = False
    profile: bool = False
    needs_s: float = _NEEDS_S
    limit_s: float = _LIMIT_S


def planned(asked: argparse.Namespace, refused: tuple[str, ...]) -> list[Step]:
    """All but the rungs, which depend on each other: what a budget can't hold is cut off at the end.

    Args:
        asked: the options.
        refused: optimizations that this machine or the workload can't have.
    """
    baseline = baseline_of(asked.device)
    name = f"{asked.device}-optimized"
    whole = resolve(name, refused, asked.workload)
    # One that hangs leaves the optimized variant its time.
    limit_s = max(asked.budget_s / 2, asked.budget_s - 2 * _LIMIT_S)
    first = Step("headline", baseline, rung_of(baseline, on=None), asked.final_epochs, limit_s=limit_s)
    best = Step(
        "headline", whole, rung_of(whole, on=baseline.name), asked.final_epochs, check=True, limit_s=2 * _LIMIT_S
    )
    finals = [best]
    if "compile" not in refused and "compiled" in asked.phases:
        compiled = resolve(f"{name}+compile", refused, asked.workload)
        rung = rung_of(compiled, on=whole.name, adds="compile")
        finals.append(replace(best, phase="compiled", variant=compiled, rung=rung))
    seeds = [replace(f, phase="seeds", repeat=r, check=False) for f in finals for r in range(1, asked.seeds)]
    # One more process of each, whose times count as those of the others do.
    profiles = [replace(f, phase="profiles", repeat=asked.seeds, check=False, profile=True) for f in finals]
    parts = list(_parts(whole, asked.epochs))
    peers = [_peer(name, asked) for name in PEERS.get(asked.workload, ())]
    steps = [first, *finals, *seeds, *profiles[:1], *parts, *peers[:1], *profiles[1:], *_kernels(parts), *peers[1:]]
    return [step for step in steps if step.phase in asked.phases]


def _parts(whole: Variant, epochs: int) -> Iterator[Step]:
    """The optimized variant less each of its parts, those first that were applied last."""
    for optimization in reversed(whole.optimizations):
        part = without(whole, optimization.name)
        yield Step("parts", part, rung_of(part, on=None), epochs)


def _kernels(parts: list[Step]) -> list[Step]:
    """The same kernels launched one by one: a profiler may know less of those within a graph."""
    launched = [p for p in parts if p.variant.name.endswith("-without-graph")]
    return [replace(p, phase="profiles", repeat=1, profile=True) for p in launched]


def _peer(name: str, asked: argparse.Namespace) -> Step:
    epochs = _LONG_EPOCHS if name == "peer-tutorial" else asked.final_epochs
    variant = Variant(name, asked.device, ())
    return Step("peers", variant, Rung(variant=name), epochs, limit_s=2 * _LIMIT_S)


def rung_step(variant: Variant, rung: Rung) -> Step:
    """A rung, tried on the best so far."""
    return Step("rungs", variant, rung, _LONG_EPOCHS, check=True)


def further_try(step: Step) -> Step:
    """A step that failed once more, for which as much has to be left as the first try had, with all that is left.

    A compiler finds in its cache what it made the first time.
    """
    return replace(step, needs_s=step.needs_s if math.isinf(step.limit_s) else step.limit_s, limit_s=math.inf)


def plan_of(asked: argparse.Namespace, probe: ProbeRecord) -> tuple[Plan, ProbeRecord]:
    """The rungs: what --rungs names, else those at the baseline's own batch; with what the compiler lacks here."""
    entry = find_workload(asked.workload)
    preset = find_preset(entry, "full")
    chosen = tuple(asked.rungs.split(",")) if asked.rungs else _at_own_batch(tried_rungs(asked.device, preset))
    probe = probe.model_copy(update={"refusals": probe.refusals | unfit(entry, asked.device)})
    if asked.device == "cuda":
        compiling = replace(preset, rungs=(*chosen, "compile"))
        probe = probe_slow_rungs(probe, (entry.name, "cuda", compiling), find_places())
    plan = make_plan(asked.device, replace(preset, rungs=chosen), None, probe, entry.name)
    refused = {f"{asked.device}-{name}" for name in plan.refused}
    why = "not tried, to keep within the budget: name it in --rungs"
    left_out = (o if o.variant in refused else o.model_copy(update={"reason": why}) for o in plan.left_out)
    return replace(plan, left_out=tuple(left_out)), probe


def _at_own_batch(rungs: tuple[str, ...]) -> tuple[str, ...]:
    """Those before the larger batch, what follows being told by the parts of the optimized variant, and the last one.

    That one, where evaluation stays on the CPU, stands on all others.
    """
    before = rungs[: rungs.index("large-batch")] if "large-batch" in rungs else rungs
    away = {*STATISTICAL, *COMPILE_RUNGS, *_SLOW}
    return tuple(r for r in rungs if r not in away and (r in before or r == "evaluate-on-cpu"))
