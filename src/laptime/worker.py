"""spec.json in, record.json out: all that a process, a container or a pod ever runs.

    python -m laptime.worker SPEC.json RECORD.json

Beside the record it writes progress.jsonl (one JSON object a line), samples.png, model_summary.txt and, where the
spec asks for it, model.pt with a plain state dict. Needs torch, torchvision, numpy and pydantic, nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from laptime.artifacts import write_model, write_samples, write_summary
from laptime.data.tensors import ImageData, limit, open_tensors
from laptime.engine.build import build, make_recipe
from laptime.engine.check import check_one_step
from laptime.engine.flops import flops_per_sample
from laptime.engine.plain import removed_parameters
from laptime.errors import LaptimeError, UsageError
from laptime.measure.compiling import CompileWatch, watching
from laptime.measure.epochs import Plan, Session
from laptime.measure.machine import machine
from laptime.measure.marks import StepMarks
from laptime.optimizations.base import Recipe
from laptime.processes import die_with_parent
from laptime.records import CheckRecord, EpochRecord, RunRecord, Status, write_json
from laptime.spec import OptimizationSpec, RunSpec, read_spec

_EVERY_S = 0.5
# Operations are counted on the net without dead taps for all variants alike: those of the taps are no use to anybody.
_USEFUL = (OptimizationSpec(name="dead-taps"),)


@dataclass
class Facts:
    """What is known of the run so far; a failed run keeps what it had."""

    started_at: float
    check: CheckRecord | None = None
    recipe: Recipe | None = None
    flops: float | None = None
    startup_s: float | None = None
    warmup_s: float | None = None
    watch: CompileWatch | None = None


class ProgressFile:
    """Appends progress as JSON lines, at most twice a second within an epoch, so that it costs an epoch nothing."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._clock, self._next = clock, 0.0

    def step(self, epoch: int, done: int, steps: int) -> None:
        """Notes a step when the time has come."""
        now = self._clock()
        if now >= self._next:
            self._next = now + _EVERY_S
            self.write({"event": "step", "epoch": epoch, "done": done, "steps": steps})

    def write(self, event: dict[str, object]) -> None:
        """Writes one event."""
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def run(spec: RunSpec, folder: Path) -> RunRecord:
    """Runs a spec in this process and returns its record, whatever went wrong.

    Args:
        spec: what to run.
        folder: where the files beside the record go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine()  # notes the load before this run adds to it
    facts, epochs = Facts(started_at=time.time()), list[EpochRecord]()
    status: Status = "done"
    error: str | None = None
    with contextlib.closing(ProgressFile(folder / "progress.jsonl")) as progress:
        try:
            for epoch in _train(spec, folder, facts, progress):
                epochs.append(epoch)
                progress.write({"event": "epoch", **epoch.model_dump(mode="json")})
                print(_line(epoch, timed=not spec.check), flush=True)  # noqa: T201 - the trainer's own output
            if spec.check:
                print(_times(epochs), flush=True)  # noqa: T201 - only now: a time is shown once the check has passed
        except _Wrong as wrong:
            status, error = "wrong", str(wrong)
        except LaptimeError as known:
            status, error = "failed", str(known)
        except Exception as unexpected:  # a variant that crashes becomes a failed run; the ladder goes on
            traceback.print_exc()
            status, error = "failed", explain(unexpected)
    return _record(spec, facts, tuple(epochs), (status, error))


def explain(error: Exception) -> str:
    """One sentence for an unexpected error: out of memory by its name, everything else by type and place."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
        return f"out of memory ({text[:200]}): make the batch smaller."
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text[:300]} (in {Path(frame.filename).name}, line {frame.lineno}; see log.txt)."


class _Wrong(Exception):  # noqa: N818 - a verdict, not an error
    """The one-step comparison failed."""


def _train(spec: RunSpec, folder: Path, facts: Facts, progress: ProgressFile) -> Iterator[EpochRecord]:
    data = _open(spec)
    recipe = facts.recipe = make_recipe(spec, data, spec.optimizations)
    facts.flops = flops_per_sample(make_recipe(spec, data, _USEFUL))
    _write_artifacts(recipe, data, folder)
    marks = StepMarks()
    parts = build(recipe, marks)
    session = Session(parts, recipe, marks, progress.step)
    plan = Plan(spec.epochs, spec.warmup_epochs, spec.warmup_steps)
    facts.startup_s = time.time() - facts.started_at
    progress.write({"event": "phase", "phase": "warm-up"})
    with watching(recipe.compiled) as session.watch:
        facts.watch = session.watch
        facts.warmup_s = session.warm_up(plan)
        yield from session.counted(plan)
    if spec.save_model:
        write_model(parts.model, folder / "model.pt")
    if spec.check:
        # After the timed part, whose memory and allocator it would disturb; before the time is shown to anybody.
        progress.write({"event": "phase", "phase": "check"})
        settled = spec.model_copy(update={"optimizations": _settled(spec, recipe)})
        facts.check = check_one_step(settled, data, recipe.batch_size)
        _refuse_wrong(facts.check)


def _open(spec: RunSpec) -> ImageData:
    whole = open_tensors(spec.data)
    train = limit(whole.train, spec.limit_train, "train")
    return replace(whole, train=train, test=limit(whole.test, spec.limit_test, "test"))


def _settled(spec: RunSpec, recipe: Recipe) -> tuple[OptimizationSpec, ...]:
    """The optimizations with what transforms chose by timing written out."""
    return tuple(
        OptimizationSpec(name=o.name, options={**o.options, **recipe.settled.get(o.name, {})})
        for o in spec.optimizations
    )


def _refuse_wrong(check: CheckRecord | None) -> None:
    if check is not None and not check.passed:
        raise _Wrong(
            f"one step differs from the baseline's: loss {check.loss_variant:.6g} instead of {check.loss_baseline:.6g} "
            f"(relative error {check.loss_error:.2g}, allowed {check.loss_tolerance:g}), gradient error "
            f"{check.gradient_error:.2g} (allowed {check.gradient_tolerance:g})."
        )


def _write_artifacts(recipe: Recipe, data: ImageData, folder: Path) -> None:
    write_samples(data, folder / "samples.png")
    write_summary(recipe, folder / "model_summary.txt")


def _record(
    spec: RunSpec, facts: Facts, epochs: tuple[EpochRecord, ...], outcome: tuple[Status, str | None]
) -> RunRecord:
    recipe = facts.recipe
    parameters = sum(p.numel() for p in recipe.model.parameters()) if recipe else None
    peaks = [e.peak_memory_mib for e in epochs if e.peak_memory_mib is not None]
    return RunRecord(
        status=outcome[0],
        error=outcome[1],
        spec=spec,
        machine=machine(),
        epochs=epochs,
        check=facts.check,
        settled=_settled(spec, recipe) if recipe else (),
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
        started_at=facts.started_at,
        ended_at=time.time(),
        commit=os.environ.get("LAPTIME_COMMIT") or None,
        notes=recipe.notes if recipe else (),
    )


def _line(epoch: EpochRecord, timed: bool) -> str:
    time_s = f"{epoch.epoch_s:.2f} s, {epoch.samples_per_s or 0:,.0f} samples/s, " if timed else ""
    return (
        f"epoch {epoch.index}: {time_s}train loss {epoch.train_loss:.3f}, train accuracy {epoch.train_accuracy:.3f}, "
        f"test accuracy {epoch.test_accuracy:.3f}"
    )


def _times(epochs: list[EpochRecord]) -> str:
    return f"epochs took {', '.join(f'{e.epoch_s:.2f} s' for e in epochs)}"


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """The command; exit code 0 when a record was written, whatever its status."""
    die_with_parent()
    signal.signal(signal.SIGTERM, _on_sigterm)
    if len(arguments) != 2:
        print("usage: python -m laptime.worker SPEC.json RECORD.json", file=sys.stderr)  # noqa: T201
        return UsageError.exit_code
    spec_path, record_path = map(Path, arguments)
    try:
        spec = read_spec(spec_path)
        write_json(record_path, run(spec, record_path.parent))
    except LaptimeError as error:
        print(f"laptime.worker: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def leave(code: int) -> NoReturn:
    """Ends the process without the interpreter's teardown: with torch loaded that takes 0.9 s.

    Everything is written and closed by now.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
