"""The profiled segment: more steps of the same epoch iterator, under torch's profiler.

It comes after the counted epochs, their evaluation and the saving of the model, since it trains on; and before the
one-step check, which sets number modes of its own and would leave its nets in the allocator. All ranks take part in the
steps, for they exchange gradients; the first one records.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule

from laptime.engine.loop import train_epoch
from laptime.optimizations.base import ConstantRate, Parts
from laptime.profiling.regions import Kind, RegionMarks
from laptime.spec import ProfileSchedule

# Steps before the profiler's own, which teach the marks: an epoch's first and one more.
_TEACHING = 2
# Parameter tensors times recorded steps: 25,000 made a trace of 330 MB, in whose reading torch took 7 GB.
_TENSORS = 10_000
_ACTIVE = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def fitted(asked: ProfileSchedule, step_s: float | None, limit_s: float) -> tuple[ProfileSchedule, str]:
    """Cuts a schedule to the steps that a time holds, down to one recorded step.

    Cycles go first, then waiting, then recorded steps but two, then warming up, then all but one.

    Args:
        asked: the schedule that was asked for.
        step_s: seconds of a step; None where unknown.
        limit_s: for all steps together.

    Returns:
        The schedule, and a note where it is another one.
    """
    if step_s is None or asked.steps * step_s <= limit_s:
        return asked, ""
    room = max(1, int(limit_s / step_s))
    repeat = max(1, min(asked.repeat, room // (asked.steps // asked.repeat)))
    found, room = replace(asked, repeat=repeat), room // repeat
    for part, least in (("wait", 0), ("active", min(2, asked.active)), ("warmup", 0), ("active", 1)):
        over = found.wait + found.warmup + found.active - room
        now = getattr(found, part)
        found = replace(found, **{part: now - max(0, min(over, now - least))})
    why = f"{asked.steps} steps of {step_s:.2f} s are more than {limit_s:.0f} s"
    return found, f"schedule {asked} cut to {found}: {why}"


def slimmed(fitting: tuple[ProfileSchedule, str], tensors: int) -> tuple[ProfileSchedule, str]:
    """Cuts the recorded steps of a net of thousands of layers to those that torch can read back in some gigabytes.

    Args:
        fitting: a schedule with its note, as `fitted` gives them.
        tensors: parameters of the net.
    """
    steps, note = fitting
    most = max(1, _TENSORS // max(1, tensors))
    if steps.active <= most:
        return fitting
    found = replace(steps, active=most)
    why = f"schedule {steps} cut to {found}: of {tensors:,} parameter tensors more steps take too much memory to read"
    return found, f"{note}; {why}" if note else why


class Recorder:
    """A profiler whose failures end the recording and nothing else: the steps go on, as other ranks wait for them.

    Attributes:
        profiler: None on ranks that record nothing, and after a failure.
        failure: why there is no recording.
        steps_ms: of the steps that the schedule recorded in its last cycle, which trace and tables are of.
    """

    def __init__(self, make: Callable[[], profile] | None) -> None:
        """Takes what makes the profiler; None on a rank that records nothing."""
        self.profiler: profile | None = None
        self.failure = ""
        self.steps_ms: list[float] = []
        self._cycle_over = False
        if make is not None:
            with self._guarded():
                self.profiler = make()

    def start(self) -> None:
        """Begins with the schedule's first step."""
        with self._guarded():
            if self.profiler is not None:
                self.profiler.start()

    def end_step(self, step_ms: float) -> None:
        """Takes a step that has ended; its time counts where the schedule recorded it."""
        with self._guarded():
            if self.profiler is not None:
                action = self.profiler.current_action
                if action in _ACTIVE:
                    if self._cycle_over:
                        self.steps_ms.clear()
                    self._cycle_over = action is ProfilerAction.RECORD_AND_SAVE
                    self.steps_ms.append(step_ms)
                self.profiler.step()

    def stop(self) -> None:
        """Ends the recording."""
        with self._guarded():
            if self.profiler is not None:
                self.profiler.stop()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a profiler, its drivers and its tracer raise
            self.failure = f"the profiler failed: {in_one_line(error)}"
            self.profiler = None


def in_one_line(error: Exception) -> str:
    """An error's type and what it says."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def activities_of(device: torch.device) -> list[ProfilerActivity]:
    """What is recorded: the host, and the GPU of a run that is on one."""
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]


def make_profiler(device: torch.device, steps: ProfileSchedule, **what: Any) -> profile:
    """A profiler of CPU and, where the run is on one, GPU.

    Args:
        device: the run's.
        steps: its schedule.
        what: further arguments: `record_shapes`, `with_stack`, `profile_memory`.
    """
    # Kineto writes a line for each start and stop, and one that calls a machine without a GPU an error.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    kind = schedule(wait=steps.wait, warmup=steps.warmup, active=steps.active, repeat=steps.repeat)
    return profile(activities=activities_of(device), schedule=kind, **what)


def record_steps(parts: Parts, epoch: int, steps: ProfileSchedule, recorder: Recorder) -> None:
    """Trains on for a schedule's steps; all but the recorder is the same on all ranks.  # all ranks

    Args:
        parts: as they came out of the counted epochs, with `RegionMarks`; see `undisturbed`.
        epoch: which one is repeated for as long as the schedule lasts.
        steps: the schedule.
        recorder: the profiler of this rank, if it has one.
    """
    marks, stepping = parts.mark, _endless(parts, epoch)
    assert isinstance(marks, RegionMarks)
    if not marks.orders:
        for _ in range(_TEACHING):
            next(stepping)
    waits = waiting_steps(steps)
    _wait(parts, -1 in waits)
    recorder.start()
    try:
        for place in range(steps.steps):
            begin = time.perf_counter()
            next(stepping)
            _wait(parts, place in waits)
            recorder.end_step(1e3 * (time.perf_counter() - begin))
    finally:
        recorder.stop()


def waiting_steps(steps: ProfileSchedule) -> frozenset[int]:
    """Steps, from 0, at whose end the host waits for the device; -1 is before all of them.

    The host runs ahead. Without a wait before a cycle's first recorded step the kernels of earlier steps would lie in
    it, and without one in its last those of the recorded steps would lie in none.
    """
    cycle = steps.wait + steps.warmup + steps.active
    lasts = range(cycle - 1, steps.steps, cycle)
    return frozenset({*lasts, *(last - steps.active for last in lasts)})


def _wait(parts: Parts, needed: bool) -> None:
    if needed and parts.device.type == "cuda":
        torch.cuda.synchronize(parts.device)  # waits for the device


def _endless(parts: Parts, epoch: int) -> Iterator[None]:
    """Steps of one epoch again and again, with their regions: small data hold fewer steps than a schedule."""
    marks, count = parts.mark, len(parts.loader)
    assert isinstance(marks, RegionMarks)
    while True:
        epoch_steps = train_epoch(parts, epoch)
        for place in range(count):
            marks.begin_step(Kind.of(place, count))
            next(epoch_steps)
            marks.end_step()
            yield


@contextlib.contextmanager
def undisturbed(parts: Parts) -> Iterator[None]:
    """Marks regions; puts mark, schedule and random states back afterwards.

    The parts themselves stay the same object, since a recorded graph belongs to them; the learning rate stays where the
    counted epochs left it, since a schedule counts its steps and refuses more.
    """
    mark, rates = parts.mark, parts.schedule
    parts.mark, parts.schedule = RegionMarks(), ConstantRate()
    devices = [parts.device] if parts.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
            # Both are said by torch of what a user has asked for: no warming up, several cycles.
            warnings.filterwarnings("ignore", "Profiler won't be using warmup")
            warnings.filterwarnings("ignore", "Warning: Profiler clears events")
            yield
    finally:
        parts.mark, parts.schedule = mark, rates
