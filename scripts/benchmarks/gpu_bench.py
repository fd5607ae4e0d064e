"""Runs the steps of `scripts/bench gpu` within its budget, and keeps the ladder's record with what they showed."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpu_climb import Rungs
from gpu_ending import told
from gpu_plan import Step, further_try, plan_of, planned
from peer_runs import run_peer

from laptime.catalogue import find_workload
from laptime.compare.floor import quality_floor
from laptime.errors import DataError, LaptimeError, UsageError
from laptime.host.output import say, say_traceback
from laptime.ladder.climb import fastest_s
from laptime.ladder.request import LadderRequest, make_request, make_spec, settled_preset
from laptime.ladder.surroundings import commit
from laptime.launchers import launch
from laptime.launchers.base import LOG, RECORD, Hooks, failed
from laptime.records import (
    LadderRecord,
    LeftOut,
    ProbeRecord,
    Rung,
    RunRecord,
    read_ladder,
    read_record,
    write_json,
    write_record,
)
from laptime.spec import DataSpec, OptimizationSpec, RunSpec
from laptime.variants import Variant

_LEAST_S = 5.0
# What a folder's ladder has to be the same in: its words in a refusal, and where it stands.
_SAME: dict[str, Callable[[LadderRecord], object]] = {
    "workload": lambda r: (r.workload, r.device, r.limit_train, r.limit_test),
    "commit": lambda r: r.commit,
    "data set": lambda r: r.data.digest,
    "machine": lambda r: (r.probe.machine.gpus, r.probe.machine.cpu, r.probe.machine.torch),
}
# Seconds of imports, and of a profile.
_AROUND_S, _PROFILE_S = 8.0, 20.0


def request_of(asked: argparse.Namespace) -> LadderRequest:
    """The ladder that the options ask for."""
    return make_request(
        workload=asked.workload,
        preset="full",
        device=asked.device,
        epochs=asked.final_epochs,
        limit_train=asked.limit_train,
        limit_test=asked.limit_test,
    )


def commit_here() -> str | None:
    """What is timed: the commit, or what stands for it where there is no checkout."""
    # A first go's own results, or an archive of them, must not make another commit of the second one's.
    return os.environ.get("LAPTIME_COMMIT") or commit(untracked=False)


def refuse_another(asked: argparse.Namespace) -> None:
    """Refuses a folder whose ladder is another one by the options or the commit: both are known before any work."""
    preset = settled_preset(request_of(asked))
    own = (asked.workload, asked.device, preset.limit_train, preset.limit_test)
    _refuse(Path(asked.out), {"workload": own, "commit": commit_here()})


def _refuse(folder: Path, own: Mapping[str, object]) -> None:
    path = folder / "ladder.json"
    if not path.is_file():
        return
    before = read_ladder(path)
    for what, value in own.items():
        if _SAME[what](before) != value:
            raise UsageError(f"--out {folder} holds a ladder of another {what}: give another folder.")


class Bench:
    """One go of the bench, or the next one in the same folder, which takes what is there as it is.

    Attributes:
        runs: by variant.
        settled: the optimizations of a variant with what its first process chose by timing.
        not_run: variants for which no time was left.
    """

    def __init__(self, asked: argparse.Namespace, data: DataSpec, probe: ProbeRecord, begin: float) -> None:
        self.asked, self.data, self.begin, self.folder = asked, data, begin, Path(asked.out)
        self.request = request_of(asked)
        self.plan, self.probe = plan_of(asked, probe)
        self.runs: dict[str, list[RunRecord]] = {}
        self.settled: dict[str, tuple[OptimizationSpec, ...]] = {}
        self.not_run: dict[str, str] = {}
        self._full = False
        self.record = self._ladder_record()
        _refuse(self.folder, {what: of(self.record) for what, of in _SAME.items()})
        self._save()

    def _ladder_record(self) -> LadderRecord:
        entry, preset = find_workload(self.asked.workload), settled_preset(self.request)
        return LadderRecord(
            id=f"{time.strftime('%Y%m%d-%H%M%S')}-{entry.name}-gpu",
            workload=entry.name,
            preset="full",
            device=self.asked.device,
            data=self.data,
            probe=self.probe,
            epochs=self.asked.final_epochs,
            limit_train=preset.limit_train,
            limit_test=preset.limit_test,
            quality=entry.quality,
            quality_floor=quality_floor(entry.name, len(self.data.classes), self.data.commonest),
            commit=commit_here(),
            started_at=time.time(),
        )

    def run(self) -> None:
        """The planned steps, then rung by rung, then once more what failed, for which by then nothing else waits."""
        steps = planned(self.asked, self.plan.refused)
        before = {step.variant.name for step in steps if self.failed_before(step)}
        steps = [self._with_all(step) if step.variant.name in before else step for step in steps]
        again = self._taken(sorted(steps, key=lambda step: step.variant.name in before))  # may fail again: comes last
        rungs = Rungs(self)
        failed_rungs = rungs.tried() if "rungs" in self.asked.phases else []
        self._taken([further_try(step) for step in again])
        rungs.again(failed_rungs)

    def _with_all(self, step: Step) -> Step:
        """What the headline needs has all that is left where it failed in an earlier go: its limit may be too low."""
        return replace(step, limit_s=math.inf) if step.phase == "headline" else step

    def _taken(self, steps: list[Step]) -> list[Step]:
        """Takes steps; those of a variant wait from its first process on that fails, and are given back with it."""
        waiting: list[Step] = []
        for step in steps:
            held = any(step.variant.name == other.variant.name for other in waiting)
            record = None if held else self.take(step)
            if held or (record is not None and record.status == "failed"):
                waiting.append(step)
        return waiting

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return float(self.asked.budget_s) - (time.monotonic() - self.begin)

    def take(self, step: Step) -> RunRecord | None:
        """The record of a step, from this go or an earlier one; None where no time is left for it."""
        name = step.variant.name
        record = self.kept(step)
        if record is None:
            needed = self._needs_s(step)
            if self.left_s() < needed:
                why = f"not run: of the budget {max(0.0, self.left_s()):.0f} s were left for some {needed:.0f} s"
                self.not_run[name] = why
                say(f"{name} #{step.repeat}: {why}")
                return None
            record = self._tried(step)
        if name not in self.runs:
            self.put(step.rung)
        before = [r for r in self.runs.get(name, ()) if r.spec is None or r.spec.repeat != step.repeat]
        self.runs[name] = [*before, record]  # in the place of one that failed
        if record.settled:
            self.settled.setdefault(name, record.settled)
        self._save()
        self._tell(step, record)
        return record

    def _needs_s(self, step: Step) -> float:
        """What a step takes, by an earlier process of its variant, whose check and profile are no part of it."""
        runs = self.runs.get(step.variant.name, ())
        before = next((r for r in runs if r.epochs and r.status != "failed"), None)
        if before is None:
            return max(step.needs_s, _LEAST_S)
        epochs = sum(e.epoch_s + (e.evaluate_s or 0.0) for e in before.epochs) / len(before.epochs)
        once = (before.startup_s or 0.0) + (before.warmup_s or 0.0) + _AROUND_S + _PROFILE_S * step.profile
        return once + step.epochs * epochs

    def kept(self, step: Step) -> RunRecord | None:
        """What an earlier go left of a step; what failed there is tried again."""
        before = self._before(step)
        return before if before is not None and before.status in ("done", "wrong") else None

    def failed_before(self, step: Step) -> bool:
        """Whether an earlier go, or this one, began a step and has no result of it."""
        return self._before(step) is not None and self.kept(step) is None

    def _before(self, step: Step) -> RunRecord | None:
        try:
            return read_record(self._folder_of(step) / RECORD)
        except DataError:
            return None

    def _folder_of(self, step: Step) -> Path:
        return Path(self.folder, step.variant.name, str(step.repeat))

    def _tried(self, step: Step) -> RunRecord:
        """The record of a process; whatever goes wrong around it is its failure alone, and the others have their turn.

        On a lent machine there is no second time.
        """
        try:
            return self._started(step)
        except Exception as error:
            if not isinstance(error, (LaptimeError, OSError)):
                say_traceback()
            record = failed(self._spec(step), told(error))
            self._written(self._folder_of(step) / RECORD, record)
            return record

    def _started(self, step: Step) -> RunRecord:
        spec, folder = self._spec(step), self._folder_of(step)
        if step.phase != "peers":
            return launch("process", spec, folder, Hooks(say=say))
        record = RunRecord(status="done", spec=spec, machine=self.probe.machine, commit=self.record.commit)
        folder.mkdir(parents=True, exist_ok=True)
        record = record.model_copy(update=run_peer(spec, say, folder / LOG))
        write_record(folder / RECORD, record)
        return record

    def _spec(self, step: Step) -> RunSpec:
        variant = replace(step.variant, optimizations=self.chosen(step.variant))
        update = {
            "epochs": step.epochs,
            "check": step.check,
            "save_model": False,
            "profile": "full" if step.profile else "none",
            "ceilings": self.probe.machine.ceilings.model_dump(exclude_none=True),
            "timeout_s": max(_LEAST_S, min(step.limit_s, self.left_s())),
        }
        return make_spec(self.request, variant, self.data, step.repeat).model_copy(update=update)

    def chosen(self, variant: Variant) -> tuple[OptimizationSpec, ...]:
        """A variant's optimizations with what its first process chose, or the optimized variant that it is made of."""
        whole = f"{self.asked.device}-optimized"
        of = variant.name if variant.name in self.settled else whole if variant.name.startswith(whole) else ""
        known = {o.name: o for o in self.settled.get(of, ())}
        if "dead-taps" in known and all(o.name != "dead-taps" for o in variant.optimizations):
            known.pop("products", None)  # chosen where kernels are cropped: whole ones can't be products everywhere
        return tuple(known.get(o.name, o) for o in variant.optimizations)

    def put(self, rung: Rung) -> None:
        """Notes a rung, in the place of what stood there of its variant."""
        others = [r for r in self.record.rungs if r.variant != rung.variant]
        place = next((i for i, r in enumerate(self.record.rungs) if r.variant == rung.variant), len(others))
        self.record = self.record.model_copy(update={"rungs": (*others[:place], rung, *others[place:])})
        self._save()

    def _tell(self, step: Step, record: RunRecord) -> None:
        best = fastest_s(record.model_copy(update={"status": "done"}))
        found = f"{best * 1000:,.1f} ms an epoch" if best is not None else ""
        if record.status != "done":
            found = f"{record.status}: {record.error}" + (f" ({found})" if found else "")
        say(f"[{self.asked.budget_s - self.left_s():4.0f} s] {step.variant.name} #{step.repeat}: {found}")

    def finish(self, status: str) -> None:
        """Writes the end into the ladder's record."""
        repeats = max((len(r) for r in self.runs.values()), default=1)
        self.record = self.record.model_copy(update={"status": status, "ended_at": time.time(), "repeats": repeats})
        self._save()

    def _save(self) -> None:
        not_run = (LeftOut(variant=name, reason=why) for name, why in self.not_run.items() if name not in self.runs)
        left_out = (*(o for o in self.plan.left_out if o.variant not in self.runs), *not_run)
        self.record = self.record.model_copy(update={"left_out": left_out})
        self._written(self.folder / "ladder.json", self.record)

    def _written(self, path: Path, record: RunRecord | LadderRecord) -> None:
        """Writes a record; what finds no room is told once, and stands in the table at the end all the same."""
        try:
            write_json(path, record)
        except OSError as error:
            if not self._full:
                say(f"{told(error)} What is measured from here on stands in this output alone.")
            self._full = True
