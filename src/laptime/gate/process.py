"""What a training process of one side leaves, cut down to what the gate needs."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import Field

from laptime.devices import fingerprinted, host
from laptime.errors import DataError, shorten
from laptime.gate.records import ProcessRecord, Side, Wait
from laptime.gate.sides import SideError, last_lines
from laptime.host.gpus import gpu_limits
from laptime.records import CompileRecord, EpochRecord, Machine, Readable
from laptime.records.files import RECORD_FILE
from laptime.records.rates import middle
from laptime.spec import read_versioned

# Variables that both sides inherit; those of each process are told of by its machine, where its `laptime` knows them.
_DECIDE_SPEED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "CUDA_VISIBLE_DEVICES")
_LOG_BYTES = 1 << 16
# A command's own hand may have written it.
_LEFT = dataclasses.replace(RECORD_FILE, remedy="let it write what docs/record.md asks for")
# Signs in a log that something is not there, and what may be the reason.
_MISSES = ("No such file", "not found", "ModuleNotFoundError", "No module named")
_WORKTREE = "it runs in a checkout of its commit alone, without ignored data (--link), .venv and submodules not cloned"
# What must be the same on both sides; other fields of a spec may be newer on one of them.
_TRAINED = (
    "workload",
    "optimizations",
    "device",
    "batch_size",
    "learning_rate",
    "epochs",
    "warmup_epochs",
    "limit_train",
    "ranks",
    "limit_test",
    "weights",
)


class AnyRecord(Readable):
    """A record as any version or any loop writes it: the spec stays a dictionary."""

    status: str = "done"
    error: str | None = None
    epochs: tuple[EpochRecord, ...] = ()
    machine: Machine = Machine()
    spec: dict[str, Any] | None = None
    precision: str = ""
    startup_s: Wait | None = None
    compile_s: float | None = None
    compilation: CompileRecord | None = None
    syncs_per_step: int | None = None
    peak_memory_mib: float | None = None
    imported_elsewhere: tuple[str, ...] = ()
    schema_: Literal["laptime.record/1"] = Field(default="laptime.record/1", alias="schema")


class Trained(Readable):
    """A process that came through, with what was seen on the machine meanwhile.

    Attributes:
        by_turns: whether it asked for turns with another training, epoch by epoch.
        memory_mib: what it took at its peak; where its record does not say, the largest process so far.
        together_s: seconds from the first start to the last end of those that ran with it.
    """

    process: ProcessRecord
    machine: Machine
    flags: tuple[str, ...] = ()
    by_turns: bool = False
    memory_mib: float = 0.0
    together_s: float = 0.0


def tail(log: Path) -> str:
    """The end of a log, of which there may be gigabytes."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return last_lines(file.read(_LOG_BYTES).decode(errors="replace"))
    return ""


def cut_down(side: Side, seed: int, path: Path, run: tuple[float, float, Path]) -> Trained:
    """Reads a record and keeps what the gate needs.

    Args:
        side: whose process it was.
        seed: what it was told.
        path: its record.
        run: seconds that it took, when it began, its log.

    Raises:
        SideError: it holds no kept epoch.
    """
    wall_s, started_at, log = run
    if not path.exists():
        raise SideError(
            side,
            f"{side}'s training ended without a record: let it time its epochs with laptime.epochs, or write a "
            "record.json where {record} in the command or LAPTIME_RECORD names it (docs/record.md).",
            tail(log),
        )
    try:
        found = read_versioned(path, AnyRecord, _LEFT)
    except DataError as error:
        raise SideError(side, f"{side}'s training left no usable record: {error}", tail(log)) from error
    kept = [e for e in found.epochs if e.kept]
    if found.status != "done":
        raise SideError(
            side, f"{side}'s record says {shorten(found.status)}: {shorten(str(found.error), 500)}", tail(log)
        )
    if not kept or not all(0 < e.epoch_s < math.inf for e in kept):
        raise SideError(
            side, f"{side}'s record has no kept epochs with a time above 0: let it train one more.", tail(log)
        )
    if found.imported_elsewhere:
        raise SideError(
            side,
            f"{side} imports {found.imported_elsewhere[0]}, which is not of its own checkout, so both sides may train "
            "the same code: let its command set PYTHONPATH to its own folders, or install what it needs.",
            tail(log),
        )
    spec = found.spec or {}
    data = spec.get("data")
    data = data if isinstance(data, dict) else {}
    machine = _described(found.machine)
    process = ProcessRecord(
        side=side,
        seed=seed,
        index=tuple(e.index for e in kept),
        epoch_s=tuple(e.epoch_s for e in kept),
        samples=tuple(e.samples for e in kept),
        steps=min(e.steps for e in kept),
        wall_s=wall_s,
        started_at=started_at,
        spec=_digest({name: spec.get(name) for name in _TRAINED}),
        trained={name: shorten(str(spec[name]), 60) for name in _TRAINED if spec.get(name) is not None},
        data=str(data.get("digest", "")),
        stand_in=data.get("kind") == "synthetic",
        hardware=_hardware(machine),
        startup_s=found.startup_s,
        compile_s=found.compile_s,
        recompiles=found.compilation.recompiles if found.compilation else None,
        step_ms=middle(e.step_ms_median for e in kept),
        step_p99_ms=middle(e.breakdown.step_p99_ms if e.breakdown else None for e in kept),
        syncs_per_step=found.syncs_per_step,
        peak_memory_mib=found.peak_memory_mib,
        test_accuracy=kept[-1].test_accuracy,
        test_map50=kept[-1].test_map50,
        test_score=kept[-1].test_score,
        test_error=kept[-1].test_error,
        test_loss=kept[-1].test_loss,
        parts_s={name: median(e.parts_s.get(name, 0.0) for e in kept) for name in kept[0].parts_s},
    )
    return Trained(process=process, machine=machine)


def death(side: Side, code: int | None, timeout_s: float, left: tuple[Path, str, bool]) -> str:
    """Why a process that did not come through ended, in one sentence.

    Args:
        side: whose it was.
        code: its exit code, a signal below 0; None where it was ended after `timeout_s`.
        timeout_s: seconds.
        left: its record, the end of its log, and whether it ran in a checkout of a commit alone.
    """
    record, log, from_commit = left
    if code is None:
        return f"{side} ran past the time-out of {timeout_s:g} s and was ended: raise --timeout or limit the data."
    ended = f"{side}'s training was ended by signal {-code}" if code < 0 else f"{side}'s training ended with {code}"
    with contextlib.suppress(DataError):
        found = read_versioned(record, AnyRecord, RECORD_FILE)
        if found.error:
            return f"{ended}: {shorten(found.error, 500)}"
    lacks = f" ({_WORKTREE})" if from_commit and any(sign in log for sign in _MISSES) else ""
    return f"{ended}; its log tells why{lacks}."


def fingerprint(trained: Trained, what: str) -> str:
    """What decides speed and noise, as a digest: the machine with its versions, what is trained, on which data."""
    parts: dict[str, Any] = {
        "machine": trained.machine.fingerprint,
        "spec": trained.process.spec,
        "data": trained.process.data,
    }
    if trained.by_turns:  # a pair's noise is another one then
        parts["by_turns"] = True
    around = {name: os.environ[name] for name in _DECIDE_SPEED if name in os.environ}
    gpus = gpu_limits() if trained.machine.gpus else ()
    return _digest({**parts, "what": what, "samples": trained.process.samples[:1], "around": around, "gpus": gpus})


def _described(machine: Machine) -> Machine:
    """The machine that a record names; where it names none, as one of laptime.epochs, it is this one."""
    return machine if machine.fingerprint else fingerprinted(machine if machine.cpu else host())


def _hardware(machine: Machine) -> str:
    return ", ".join((machine.cpu, f"{machine.cores} cores", f"{machine.memory_gib} GiB", *machine.gpus))


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()[:16]
