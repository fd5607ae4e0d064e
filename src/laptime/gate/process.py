"""One training process of one side: alone on its device, watched, and cut down to what the gate needs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import Field

from laptime.devices import fingerprinted, gpu_limits, host, lock_name
from laptime.errors import DataError, shorten
from laptime.gate.records import ProcessRecord, Side, Wait
from laptime.gate.request import NO_DEVICE
from laptime.gate.sides import Ready, SideError
from laptime.gate.validity import Watch
from laptime.launchers.lock import device_lock
from laptime.processes import end_tree
from laptime.records import CompileRecord, EpochRecord, Machine, Readable
from laptime.records.files import RECORD_FILE
from laptime.spec import read_versioned

# Variables that both sides inherit.
_DECIDE_SPEED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "CUDA_VISIBLE_DEVICES")
_LOOK_EVERY_S = 0.1
_SAMPLE_EVERY_S = 1.0
_LOG_LINES = 40
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
    schema_: Literal["laptime.record/1"] = Field(default="laptime.record/1", alias="schema")


class Trained(Readable):
    """A process that came through, with what was seen on the machine meanwhile."""

    process: ProcessRecord
    machine: Machine
    flags: tuple[str, ...] = ()


class Trainer:
    """Runs processes of either side.

    Args:
        room: a folder for records and logs, one below for each process.
        device: whose lock is held, `cpu` or `cuda`; NO_DEVICE for none.
        timeout_s: after which a process is ended.
        say: told when another timed run holds the device.
    """

    def __init__(self, room: Path, device: str, timeout_s: float, say: Callable[[str], None]) -> None:
        self.room, self.device, self.timeout_s, self.say = room, device, timeout_s, say

    def train(self, ready: Ready, seed: int) -> Trained:
        """Trains one side to its record.

        Raises:
            SideError: it crashed, ran past its time, or left no record with kept epochs.
        """
        folder = self.room / ready.side
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        record, log = folder / "record.json", folder / "gate-log.txt"
        command = [_filled(word, seed, record, folder) for word in ready.command]
        with self._alone(ready) as held:
            watch, begin = Watch(self.device), time.time()
            clock = time.monotonic()
            code = self._supervise(command, ready, (record, log, seed), (watch, held))
            wall_s, flags = time.monotonic() - clock, watch.flags()
        if code != 0:
            raise SideError(ready.side, _death(ready.side, code, self.timeout_s, record), tail(log))
        return _cut_down(ready.side, seed, record, (wall_s, begin, log)).model_copy(update={"flags": flags})

    @contextlib.contextmanager
    def _alone(self, ready: Ready) -> Iterator[tuple[int, ...]]:
        """Holds the device; `laptime run` takes its lock itself, so there the gate only waits until it is free."""
        if self.device == NO_DEVICE:
            yield ()
            return
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(device_lock(lock_name(self.device), self.say))
            if "laptime" in ready.command[1:3]:
                stack.close()
                yield ()
            else:
                yield (lock,)

    def _supervise(
        self, command: list[str], ready: Ready, files: tuple[Path, Path, int], guards: tuple[Watch, tuple[int, ...]]
    ) -> int | None:
        """Runs a command to its end; its exit code, None when time ran out. Its whole tree ends in every case."""
        (record, log, seed), (watch, held) = files, guards
        until, sample = time.monotonic() + self.timeout_s, 0.0
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    command,
                    cwd=ready.folder,
                    env=ready.environ(record, seed),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=held,
                )
            except OSError as error:
                raise SideError(
                    ready.side, f"{ready.side}'s command {command[0]!r} can't be started: {error.strerror}."
                ) from error
            try:
                while process.poll() is None and time.monotonic() < until:
                    if time.monotonic() >= sample:
                        watch.sample()
                        sample = time.monotonic() + _SAMPLE_EVERY_S
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_LOOK_EVERY_S)
                return process.poll()
            finally:
                if process.poll() is None:
                    end_tree(process.pid)
                process.wait()


def tail(log: Path) -> str:
    """The last lines of a log."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
    return ""


def _filled(word: str, seed: int, record: Path, folder: Path) -> str:
    """Fills in the placeholders; other braces stay."""
    for name, value in (("{seed}", seed), ("{record}", record), ("{folder}", folder)):
        word = word.replace(name, str(value))
    return word


def _death(side: Side, code: int | None, timeout_s: float, record: Path) -> str:
    if code is None:
        return f"{side} ran past the time-out of {timeout_s:g} s and was ended: raise --timeout or limit the data."
    ended = f"{side}'s training was ended by signal {-code}" if code < 0 else f"{side}'s training ended with {code}"
    with contextlib.suppress(DataError):
        found = read_versioned(record, AnyRecord, RECORD_FILE)
        if found.error:
            return f"{ended}: {shorten(found.error, 500)}"
    return f"{ended}; its log tells why."


def _cut_down(side: Side, seed: int, path: Path, run: tuple[float, float, Path]) -> Trained:
    """Reads a record and keeps what the gate needs; raises SideError where it holds no kept epoch."""
    wall_s, started_at, log = run
    try:
        found = read_versioned(path, AnyRecord, RECORD_FILE)
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
    spec = found.spec or {}
    data = spec.get("data")
    data = data if isinstance(data, dict) else {}
    machine = _described(found.machine)
    process = ProcessRecord(
        side=side,
        seed=seed,
        epoch_s=tuple(e.epoch_s for e in kept),
        samples=tuple(e.samples for e in kept),
        steps=min(e.steps for e in kept),
        wall_s=wall_s,
        started_at=started_at,
        spec=_digest({name: spec.get(name) for name in _TRAINED}),
        data=str(data.get("digest", "")),
        stand_in=data.get("kind") == "synthetic",
        hardware=_hardware(machine),
        startup_s=found.startup_s,
        compile_s=found.compile_s,
        recompiles=found.compilation.recompiles if found.compilation else None,
        step_ms=_median([e.step_ms_median for e in kept]),
        step_p99_ms=_median([e.breakdown.step_p99_ms if e.breakdown else None for e in kept]),
        syncs_per_step=found.syncs_per_step,
        peak_memory_mib=found.peak_memory_mib,
        test_accuracy=kept[-1].test_accuracy,
        test_map50=kept[-1].test_map50,
        test_loss=kept[-1].test_loss,
        parts_s={name: _median([e.parts_s.get(name, 0.0) for e in kept]) or 0.0 for name in kept[0].parts_s},
    )
    return Trained(process=process, machine=machine)


def fingerprint(trained: Trained, what: str) -> str:
    """What decides speed and noise, as a digest: the machine with its versions, what is trained, on which data."""
    parts = {"machine": trained.machine.fingerprint, "spec": trained.process.spec, "data": trained.process.data}
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


def _median(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None
