"""What timing and progress cost a step; how laptime's loop compares with a plain script is `scripts/bench peers`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from laptime.artifacts import ProgressFile
from laptime.measure.marks import StepMarks

_CALLS = 200_000
_ROUNDS, _STEPS = 7, 20_000
_PARTS = ("data", "forward", "backward", "optimizer", "read")
# A thousandth of a step of 40 ms is what marks may cost.
_STEP_US = 40_000.0
_ALLOWED_US = _STEP_US / 1000


def marks_ns() -> float:
    """Nanoseconds that the marks of one step of the baseline take, CPU clocks included: the median of a few epochs."""
    marks, found = StepMarks(), []
    for _ in range(_ROUNDS):
        marks.start(_STEPS)
        begin = time.perf_counter_ns()
        for _ in range(_STEPS):
            for part in _PARTS:
                marks(part)
            marks.end_step()
        found.append((time.perf_counter_ns() - begin) / _STEPS)
        marks.stop()
    return median(found)


def progress_ns() -> float:
    """Nanoseconds of one call of the progress file, writes included."""
    with tempfile.TemporaryDirectory() as folder:
        progress = ProgressFile(Path(folder) / "progress.jsonl")
        begin = time.perf_counter_ns()
        for number in range(_CALLS):
            progress.step(0, number, _CALLS)
        return (time.perf_counter_ns() - begin) / _CALLS


def main() -> None:
    """Prints the figures as Markdown."""
    marks_us, progress_us = marks_ns() / 1000, progress_ns() / 1000
    sys.stdout.write(
        f"- Marks: {marks_us:.2f} microseconds a step ({_ALLOWED_US:.0f} are allowed); progress: {progress_us:.2f}. "
        f"Together {(marks_us + progress_us) / _STEP_US:.4%} of a step of {_STEP_US / 1000:.0f} ms.\n"
    )


if __name__ == "__main__":
    main()
