"""A ladder that a search leads, whose processes take given times and reach given qualities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.conftest import make_data_spec, make_ladder_record

from laptime.catalogue import options_of
from laptime.ladder import pairs
from laptime.ladder import run as ladder_module
from laptime.ladder.advising import Rules
from laptime.ladder.plan import make_plan
from laptime.ladder.request import LadderRequest, settled_preset
from laptime.ladder.run import Ladder
from laptime.places import Places
from laptime.records import Advice, EpochRecord, Finding, LadderRecord, Machine, ProbeRecord, RunRecord, write_json
from laptime.spec import OptimizationSpec, RunSpec
from laptime.tune import led

Seconds = Callable[[RunSpec], float]
# Parts that are in the way here, so that a search has something to find.
REFUSED = (
    *("compile", "decoded", "workers", "whole-batch", "keep-pages", "progressive-resizing", "selective-backprop"),
)


def options(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """The options of each part of a process's list."""
    return {o.name: options_of(o) for o in spec.optimizations}


def a_search(
    tmp_path: Path,
    monkeypatch: Any,
    seconds: Seconds,
    *,
    accuracy: Callable[[RunSpec], float] = lambda _: 0.8,
    status: Callable[[RunSpec], str] = lambda _: "done",
    settled: Callable[[RunSpec], tuple[OptimizationSpec, ...]] = lambda _: (),
    by_turns: bool = True,
    findings: tuple[Finding, ...] = (),
    refused: tuple[str, ...] = REFUSED,
    before: LadderRecord | None = None,
    tests: int = 10_000,
    start_s: float = 10.0,
    **asked: Any,
) -> Ladder:
    """A search on two cores, whose processes take some seconds to start and those of their epochs.

    Args:
        seconds: of an epoch.
        accuracy: after a whole training.
        status: of a process.
        settled: what a process chose by timing.
        by_turns: whether processes take turns.
        findings: what the advice says.
        refused: what the probe refuses.
        before: of a search that is gone on with, what it had come to.
        tests: samples that quality is measured on.
        start_s: seconds that a process takes to start.
        asked: options of the request.
    """

    now = [0.0]

    def a_run(spec: RunSpec, beside: str | None = None) -> RunRecord:
        now[0] += start_s + seconds(spec) * spec.epochs
        told = status(spec)
        if told != "done":
            return RunRecord(status=told, spec=spec, error="it broke")
        epochs = tuple(
            EpochRecord(index=i, epoch_s=seconds(spec), samples=100, steps=10, test_accuracy=accuracy(spec))
            for i in range(spec.epochs)
        )
        chosen = settled(spec)
        return RunRecord(status="done", spec=spec, epochs=epochs, beside=beside, peak_memory_mib=100.0, settled=chosen)

    def launch(_launcher: str, spec: RunSpec, folder: Path, _hooks: Any) -> RunRecord:
        record = a_run(spec)
        write_json(folder / "record.json", record)
        return record

    def in_turns(first: tuple[RunSpec, Path], second: tuple[RunSpec, Path], _hooks: Any) -> tuple[RunRecord, RunRecord]:
        names = (second[0].variant, first[0].variant)
        found = tuple(a_run(spec, name) for (spec, _), name in zip((first, second), names, strict=True))
        for record, (_, folder) in zip(found, (first, second), strict=True):
            write_json(folder / "record.json", record)
        return found[0], found[1]

    monkeypatch.setattr(ladder_module, "launch", launch)
    monkeypatch.setattr(ladder_module, "write_comparison", lambda *_: {})
    monkeypatch.setattr(pairs, "launch_by_turns", in_turns)
    monkeypatch.setattr(pairs, "sockets_here", lambda: by_turns)
    monkeypatch.setattr(pairs, "room_for", lambda _: True)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    request = LadderRequest(**{"epochs": 3, "repeats": 2, "budget": "10h", **asked})
    probe = ProbeRecord(machine=Machine(cores=2), gains={"bf16": 1.5}, refusals=dict.fromkeys(refused, "refused"))
    preset = settled_preset(request)
    plan = make_plan("cpu", preset, None, probe, "cifar")
    record = before or make_ladder_record(
        preset=request.preset,
        data=make_data_spec(train=5000, test=tests),
        probe=probe,
        epochs=3,
        repeats=2,
        quality_floor=0.6,
    )
    again = {"rungs": (), "search": None, "left_out": plan.left_out, "status": "running"}  # as resume.py has it
    ladder = led(Ladder(request, record.model_copy(update=again), plan, Places(tmp_path / "home")))
    ladder.before = before.turns if before else None
    ladder.folder, ladder.clock = tmp_path / "ladder", lambda: now[0]
    ladder.counsel.rules = Rules(
        lambda record, *_: Advice(subject=record.spec.variant, verdict="Look.", findings=findings), lambda _: "Look."
    )
    ladder.start()
    return ladder
