"""Runs a workload's CUDA ladder, its one-step checks and the peers in one go, where there may be nothing but torch.

PYTHONPATH=src python scripts/benchmarks/gpu.py --data DIR --out DIR [--workload eurosat] [--budget-s 500]

DIR of the data is a store's folder (with meta.json), a folder of images (train/<class>, test/<class>), or what
`laptime optimize --data` takes (`synthetic` for the stand-in). Peers are there for cifar alone. The first round tries
rungs on the best so far (not the statistical ones, and of torch.compile two modes, unless --rungs names others), as
long as that leaves time for the optimized variant and the peers, which run then; later rounds repeat all of them while
time is left. `ladder.json` and `<variant>/<repeat>/record.json` stand under the output folder after each turn, for
`laptime compare`. Needs torch, torchvision, numpy, pydantic; detection needs pycocotools, too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import FrameType

from peer_runs import run_peer

from laptime.catalogue import (
    COMPILE_RUNGS,
    LADDERS,
    STATISTICAL,
    WORKLOADS,
    find_preset,
    find_workload,
)
from laptime.compare.quality import quality_floor, rules_of
from laptime.errors import LaptimeError, UsageError
from laptime.ladder.climb import Climb, fastest_s, standing_of
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.plan import Plan, make_plan, rung_of, tried_rungs, unfit
from laptime.ladder.probing import probe_slow_rungs
from laptime.ladder.request import make_request, make_spec
from laptime.ladder.surroundings import commit, run_probe
from laptime.launchers import launch
from laptime.launchers.base import RECORD, Hooks
from laptime.places import find_places
from laptime.records import LadderRecord, ProbeRecord, Rung, RunRecord, write_json
from laptime.spec import DataSpec
from laptime.variants import Variant, baseline_of

_LEAST_S = 5.0
# Shares of the budget: kept for the optimized variant and the peers, and the most that one rung may take.
_KEPT, _RUNG = 0.3, 0.15
_COMPILED = ("compile", "compile-reduce-overhead")
# At the baseline's pace, for comparison alone.
_SLOW = ("lightning",)
# Scripts of others' hands, by workload.
_PEERS = {"cifar": ("peer-tutorial", "peer-expert")}


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Bench:
    """One go of the ladder, within its budget."""

    def __init__(self, asked: argparse.Namespace, data: DataSpec, probe: ProbeRecord, begin: float) -> None:
        self.asked, self.data, self.begin = asked, data, begin
        self.folder = asked.out
        self.request = make_request(
            workload=asked.workload,
            preset="full",
            device=asked.device,
            epochs=asked.epochs,
            limit_train=asked.limit_train,
            limit_test=asked.limit_test,
        )
        self.plan, self.probe = plan_of(asked, probe)
        self.variants: dict[str, Variant] = {}
        self.runs: dict[str, list[RunRecord]] = {}
        self.seconds: dict[str, float] = {}
        self.record = self._ladder_record()
        self._save()

    def _ladder_record(self) -> LadderRecord:
        entry = find_workload(self.asked.workload)
        return LadderRecord(
            id=f"{time.strftime('%Y%m%d-%H%M%S')}-{entry.name}-gpu",
            workload=entry.name,
            preset="full",
            device=self.asked.device,
            data=self.data,
            probe=self.probe,
            left_out=self.plan.left_out,
            epochs=self.asked.epochs,
            limit_train=self.asked.limit_train,
            limit_test=self.asked.limit_test,
            quality=entry.quality,
            quality_floor=quality_floor(entry.name, len(self.data.classes)),
            commit=os.environ.get("LAPTIME_COMMIT") or commit(),
            started_at=time.time(),
        )

    def run(self) -> None:
        """The first round, then further ones while the longest of them still fits."""
        self._first_round()
        names = [name for name in self.runs if self.runs[name][0].status == "done"]
        for repeat in range(1, self.asked.repeats):
            for name in names:
                if self.seconds[name] < self.left_s():
                    self._turn(name, repeat, self.left_s())

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return float(self.asked.budget_s) - (time.monotonic() - self.begin)

    def _first_round(self) -> None:
        baseline = baseline_of(self.asked.device)
        first = self._enter(baseline, rung_of(baseline, on=None))
        standing = standing_of(baseline, [first] if first else [], self.record.quality)
        climb = Climb(self.plan, standing, rules_of(self.record), self.record.quality)
        for group in self.plan.rungs:
            variant, rung = climb.next_rung(group)
            if variant.optimizations == climb.best.optimizations:
                continue  # a second try of what joined at the first
            record = self._enter(variant, rung, self._rung_limit_s(climb.best.name))
            if record is not None:
                self._put(climb.judge(variant, rung, record))
        for variant, rung in climb.optimized():
            self._enter(variant, rung)
        for name in _PEERS.get(self.asked.workload, ()):
            self._enter(Variant(name, self.asked.device, ()), Rung(variant=name))

    def _rung_limit_s(self, best: str) -> float:
        """The most that a rung may take: one that takes far longer than what it stands on will not join."""
        most = max(_RUNG * self.asked.budget_s, 1.5 * self.seconds.get(best, 0.0))
        return min(most, self.left_s() - _KEPT * self.asked.budget_s)

    def _enter(self, variant: Variant, rung: Rung, limit_s: float | None = None) -> RunRecord | None:
        """Runs a variant for the first time; None where no time is left."""
        limit_s = self.left_s() if limit_s is None else limit_s
        if limit_s < _LEAST_S:
            say(f"{variant.name}: left out, its part of the budget of {self.asked.budget_s:g} s is spent")
            return None
        self.variants[variant.name] = variant
        self._put(rung)
        return self._turn(variant.name, 0, limit_s)

    def _put(self, rung: Rung) -> None:
        others = [r for r in self.record.rungs if r.variant != rung.variant]
        place = next((i for i, r in enumerate(self.record.rungs) if r.variant == rung.variant), len(others))
        self.record = self.record.model_copy(update={"rungs": (*others[:place], rung, *others[place:])})
        self._save()

    def _turn(self, name: str, repeat: int, limit_s: float) -> RunRecord:
        begin, variant = time.monotonic(), self.variants[name]
        folder = self.folder / name / str(repeat)
        spec = make_spec(self.request, variant, self.data, repeat)
        spec = spec.model_copy(update={"save_model": False, "profile": "none", "timeout_s": max(limit_s, _LEAST_S)})
        if name.startswith("peer-"):
            record = RunRecord(status="done", spec=spec, machine=self.probe.machine, commit=self.record.commit)
            record = record.model_copy(
                update=run_peer(name.removeprefix("peer-"), self.asked, self.data.path, spec.timeout_s, say)
            )
            write_json(folder / RECORD, record)
        else:
            record = launch("process", spec, folder, Hooks(say=say))
        self.runs.setdefault(name, []).append(record)
        self.seconds[name] = time.monotonic() - begin
        if record.settled:
            self.variants[name] = replace(variant, optimizations=record.settled)
        self._save()
        best = fastest_s(record)
        outcome = f"{best * 1000:,.1f} ms an epoch" if best is not None else f"{record.status}: {record.error}"
        say(f"[{self.asked.budget_s - self.left_s():4.0f} s] {name} #{repeat}: {outcome}")
        return record

    def finish(self, status: str) -> None:
        """Writes the end into the ladder's record."""
        repeats = max((len(r) for r in self.runs.values()), default=1)
        self.record = self.record.model_copy(update={"status": status, "ended_at": time.time(), "repeats": repeats})
        self._save()

    def _save(self) -> None:
        write_json(self.folder / "ladder.json", self.record)

    def table(self) -> list[str]:
        """One line a variant, the baseline first."""
        times = {name: _median_s(runs) for name, runs in self.runs.items()}
        base = times.get(baseline_of(self.asked.device).name)
        lines = [
            f"{'variant':<34}{'epoch':>12}{'speed':>9}{'images/s':>12}{'MiB':>8}{self.record.quality:>10}  n  joined"
        ]
        joined = {r.variant: {True: "yes", False: "no", None: ""}[r.joined] for r in self.record.rungs}
        for name, seconds in times.items():
            runs = self.runs[name]
            if seconds is None:
                lines.append(f"{name:<34}{runs[0].status}: {(runs[0].error or '')[:90]}")
                continue
            last = runs[0].kept[-1]
            speed = f"{base / seconds:.1f}x" if base else ""
            memory = f"{runs[0].peak_memory_mib:,.0f}" if runs[0].peak_memory_mib else ""
            value = getattr(last, f"test_{self.record.quality}")
            quality = f"{value:.3f}" if value is not None else ""
            done = sum(r.status == "done" for r in runs)
            cells = f"{seconds * 1000:>9,.1f} ms{speed:>9}{last.samples / seconds:>12,.0f}{memory:>8}{quality:>10}"
            lines.append(f"{name:<34}{cells}{done:>3}  {joined.get(name, '')}")
        return lines


def plan_of(asked: argparse.Namespace, probe: ProbeRecord) -> tuple[Plan, ProbeRecord]:
    """What is tried: what --rungs names, else what a budget can hold; with what is known of the compiler here."""
    entry = find_workload(asked.workload)
    preset = find_preset(entry, "full")
    away = {*STATISTICAL, *_SLOW, *COMPILE_RUNGS} - {*_COMPILED}
    known = [r for r in tried_rungs(asked.device, preset) if r not in away]
    preset = replace(preset, rungs=tuple(asked.rungs.split(",") if asked.rungs else known))
    probe = probe.model_copy(update={"refusals": probe.refusals | unfit(entry, asked.device)})
    if asked.device == "cuda":
        probe = probe_slow_rungs(probe, (entry.name, "cuda", preset), find_places(), say)
    plan = make_plan(asked.device, preset, None, probe, entry.name)
    refused = {f"{asked.device}-{name}" for name in plan.refused}
    why = "not tried, to keep within the budget: name it in --rungs"
    left_out = (o if o.variant in refused else o.model_copy(update={"reason": why}) for o in plan.left_out)
    return replace(plan, left_out=tuple(left_out)), probe


def _median_s(runs: list[RunRecord]) -> float | None:
    """Median over processes of the median kept epoch; None where the variant is wrong or none ended."""
    if any(r.status == "wrong" for r in runs):
        return None
    times = [median(e.epoch_s for e in r.kept) for r in runs if r.status == "done" and r.kept]
    return median(times) if times else None


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=[entry.name for entry in WORKLOADS], default="cifar")
    parser.add_argument("--data", default="auto")
    parser.add_argument("--device", choices=sorted(LADDERS), default="cuda", help="cpu for a dry exercise")
    parser.add_argument("--budget-s", type=float, default=500.0)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--epochs", type=int, default=2, help="counted ones of each process")
    parser.add_argument("--repeats", type=int, default=20, help="rounds at most")
    parser.add_argument("--rungs", help="those that get a process of their own; unless given, what a budget can hold")
    parser.add_argument("--limit-train", type=int)
    parser.add_argument("--limit-test", type=int)
    asked = parser.parse_args(arguments)
    asked.out = (asked.out or find_places().home / "bench" / time.strftime("gpu-%Y%m%d-%H%M%S")).resolve()
    return asked


def main(arguments: list[str]) -> int:
    """The command; 0 when the baseline and the optimized variant ran."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    begin, asked, ending = time.monotonic(), parse(arguments), "done"
    try:
        if (asked.out / "ladder.json").exists():
            raise UsageError(f"--out {asked.out} holds a ladder already: give another folder.")
        find_places().home.mkdir(parents=True, exist_ok=True)
        probe = run_probe((asked.workload, asked.device), find_places(), say)
        data = fetch_data(asked.workload, asked.data, find_places(), in_words(say))
        bench = Bench(asked, data, probe, begin)
    except LaptimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if data.notice:
        say(data.notice)
    os.environ["LAPTIME_COMMIT"] = bench.record.commit or ""
    try:
        bench.run()
    except KeyboardInterrupt:
        ending = "interrupted"
    bench.finish(ending)
    say("\n".join(["", *bench.table(), "", f"Records: {asked.out} (read them with: laptime compare {asked.out})"]))
    wanted = {f"{asked.device}-baseline", f"{asked.device}-optimized"}
    whole = wanted <= {name for name, runs in bench.runs.items() if runs[0].status == "done"}
    return 130 if ending == "interrupted" else 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
