"""What goes wrong: signals to processes, servers that die, lines that break, a disk that is full."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs import TRAINING, Found, Job
from proxy import Proxy

DISK_FULL = "disk full"
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class Fault:
    """One thing that can go wrong.

    Attributes:
        name: what it is, for the table.
        act: does it to a job; returns what was hit, in words.
        possible: whether a job can have it.
        ends: roles whose hit is meant to end the job or one of its trainings; empty where all goes on.
        fair: exit codes of the job that are right after it.
    """

    name: str
    act: Callable[[Job, random.Random, str], str]
    possible: Callable[[Job], bool]
    signal: int = 0
    ends: tuple[str, ...] = ()
    fair: tuple[int, ...] = (0, 1)


class MissedError(Exception):
    """What was to be hit is gone already."""


def members(job: Job, role: str) -> list[Found]:
    """The job's processes of a role, by age."""
    return sorted((p for p in job.processes() if p.role == role), key=lambda p: p.pid)


def training(job: Job) -> set[int]:
    """The processes that train now."""
    return {p.pid for p in job.processes() if p.role in TRAINING}


def hit(job: Job, choice: random.Random, role: str, number: int) -> str:
    """Sends a signal to one process of a role; Ctrl-C goes to the terminal's whole group, as it does."""
    if number == signal.SIGINT:
        os.killpg(job.pid, number)
        return "the command's group"
    found = members(job, role)
    if not found:
        raise MissedError
    one = choice.choice(found)
    try:
        os.kill(one.pid, number)
    except ProcessLookupError as error:
        raise MissedError from error
    return f"{role} {one.pid}"


def _signalled(number: int) -> Callable[[Job, random.Random, str], str]:
    return lambda job, choice, role: hit(job, choice, role, number)


def _freeze(job: Job, choice: random.Random, role: str) -> str:
    found = members(job, role)
    if not found:
        raise MissedError
    one = choice.choice(found)
    seconds = choice.uniform(0.3, 3.0)
    try:
        os.kill(one.pid, signal.SIGSTOP)
        time.sleep(seconds)
    except ProcessLookupError as error:
        raise MissedError from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGCONT)
    return f"{role} {one.pid} for {seconds:.1f} s"


def _server_dies(job: Job, choice: random.Random, _: str) -> str:
    stage = job.stage
    if _line(job) is stage.tracking:
        stage.mlflow.kill()
        if choice.random() < 0.5:
            return "MLflow, until the end"
        stage.mlflow.start()
        return "MLflow, started again"
    assert stage.s3 is not None
    stage.s3.kill()
    if choice.random() < 0.5:
        return "S3, until the end"
    stage.s3.start()
    return "S3, started again"


def _on_the_line(change: Callable[[Proxy, random.Random], str]) -> Callable[[Job, random.Random, str], str]:
    def act(job: Job, choice: random.Random, _: str) -> str:
        name = "MLflow" if _line(job) is job.stage.tracking else "S3"
        return f"{name}, {change(_line(job), choice)}"

    return act


def _cut(line: Proxy, _: random.Random) -> str:
    line.cut()
    return "once"


def _away(line: Proxy, choice: random.Random) -> str:
    line.away = True
    line.cut()
    if choice.random() < 0.5:
        return "until the end"
    seconds = choice.uniform(0.5, 4.0)
    time.sleep(seconds)
    line.away = False
    return f"for {seconds:.1f} s"


def _hold(line: Proxy, choice: random.Random) -> str:
    line.hold_up = line.hold_down = 0
    seconds = choice.uniform(1.0, 5.0)
    time.sleep(seconds)
    line.reset()
    return f"for {seconds:.1f} s, then cut"


def _slow(line: Proxy, choice: random.Random) -> str:
    line.block_s = choice.uniform(0.05, 0.3)
    return f"{line.block_s * 1000:.0f} ms a block, until the end"


def _failing(line: Proxy, _: random.Random) -> str:
    line.failing = True
    line.cut()
    return "500 to all, until the end"


def _fill(job: Job, choice: random.Random, _: str) -> str:
    left = choice.choice((0, 0, 2_000, 20_000, 200_000))
    filler = job.stage.filler
    block = bytes(1 << 20)
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(block) == len(block):
            pass
    with contextlib.suppress(OSError):
        os.truncate(filler, max(0, filler.stat().st_size - left))
    if choice.random() < 0.7:
        return f"all but {left} bytes, until the end"
    time.sleep(1.0)
    filler.unlink()
    return f"all but {left} bytes, for a second"


def _line(job: Job) -> Proxy:
    """The line that a job depends on."""
    if job.kind.name == "fetch":
        assert job.stage.storage is not None
        return job.stage.storage
    return job.stage.tracking


def _always(_: Job) -> bool:
    return True


def _on_a_line(job: Job) -> bool:
    return job.kind.tracked or job.kind.name == "fetch"


def _on_a_small_disk(job: Job) -> bool:
    return job.stage.fillable


_EVERY = ("command", *TRAINING, "data", "probe", "look", "model")

FAULTS = (
    Fault("SIGINT", _signalled(signal.SIGINT), _always, signal.SIGINT, _EVERY, (130, -2, 1)),
    # A gate takes it as Ctrl-C, and a second one on its way out ends it as a second Ctrl-C does.
    Fault("SIGTERM", _signalled(signal.SIGTERM), _always, signal.SIGTERM, _EVERY, (130, -2, 143, -15, 1, 0)),
    Fault("SIGKILL", _signalled(signal.SIGKILL), _always, signal.SIGKILL, _EVERY, (-9, 1, 0)),
    Fault("SIGSTOP, SIGCONT", _freeze, _always),
    Fault("server killed", _server_dies, _on_a_line),
    Fault("line cut", _on_the_line(_cut), _on_a_line),
    Fault("line away", _on_the_line(_away), _on_a_line),
    Fault("line held", _on_the_line(_hold), _on_a_line),
    Fault("line slow", _on_the_line(_slow), _on_a_line),
    Fault("server failing", _on_the_line(_failing), _on_a_line),
    Fault(DISK_FULL, _fill, _on_a_small_disk),
)


def inner_role(job: Job, choice: random.Random) -> str:
    """One of the roles that the job's processes have now, the command's own where there is no other.

    Raises:
        MissedError: the job has no process any more.
    """
    there = {p.role for p in job.processes()}
    inner = sorted(there & set(job.kind.roles) - {"command"})
    if not there:
        raise MissedError
    return choice.choice(inner or ["command"])


def wait(job: Job, seconds: float) -> bool:
    """Waits; returns whether the job still runs then."""
    until = time.monotonic() + seconds
    while job.code is None and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    return job.code is None
