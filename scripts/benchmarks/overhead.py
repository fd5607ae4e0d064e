"""What timing, progress and tracking cost an epoch: by the cost of a mark, and against a plain script, interleaved."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from scipy import stats

from laptime.artifacts import ProgressFile
from laptime.ladder.data import fetch_data
from laptime.ladder.request import make_request, make_spec
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.measure.marks import StepMarks
from laptime.places import find_places
from laptime.variants import resolve

# Both sides keep freed memory: what glibc does by itself depends on what a process freed before (docs/log.md).
_MALLOC = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824"
_CALLS = 200_000
_ROUNDS, _STEPS = 7, 20_000
_PARTS = ("data", "forward", "backward", "optimizer", "read")
# Where a mark is allowed to be seen: a thousandth of a step of 40 ms.
_ALLOWED_US = 40.0


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="for the comparison with a plain script; without it only the marks are timed")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=2)
    asked = parser.parse_args()
    marks_us, progress_us = marks_ns() / 1000, progress_ns() / 1000
    sys.stdout.write(
        f"- Marks: {marks_us:.2f} microseconds a step ({_ALLOWED_US:.0f} are allowed); progress: {progress_us:.2f}.\n"
    )
    if not asked.data:
        return
    os.environ["GLIBC_TUNABLES"] = _MALLOC
    places = find_places()
    data = fetch_data("cifar", asked.data, places)
    request = make_request(preset="quick", epochs=asked.epochs, limit_train=asked.images, limit_test=10)
    spec = make_spec(request, resolve("cpu-baseline"), data, 1)
    plain = [sys.executable, str(Path(__file__).with_name("plain_loop.py")), data.path, str(asked.images)]
    ratios, step_s = [], math.inf
    with tempfile.TemporaryDirectory() as scratch:
        for pair in range(asked.pairs):
            times = {}
            for side in ("plain", "laptime") if pair % 2 else ("laptime", "plain"):
                if side == "plain":
                    out = subprocess.run([*plain, str(asked.epochs)], capture_output=True, text=True, check=True)
                    times[side] = median(json.loads(out.stdout))
                else:
                    record = launch("process", spec, Path(scratch) / "run", Hooks())
                    times[side] = median(e.epoch_s for e in record.kept)
                    step_s = min(step_s, times[side] / record.kept[0].steps)
            ratios.append(math.log(times["laptime"] / times["plain"]))
            sys.stderr.write(f"pair {pair + 1}: {math.exp(ratios[-1]):.4f}\n")
    mean, error = float(np.mean(ratios)), float(stats.sem(ratios))
    reach = float(stats.t.ppf(0.975, len(ratios) - 1)) * error
    sys.stdout.write(
        f"- Both together: {(marks_us + progress_us) / 1e6 / step_s:.4%} of an epoch with steps of "
        f"{step_s * 1000:.1f} ms.\n"
        f"- Against a plain script of the same loop, {len(ratios)} interleaved pairs of {asked.epochs} epochs of "
        f"{asked.images} images: ratio {math.exp(mean):.4f}, 95 % interval {math.exp(mean - reach):.4f} to "
        f"{math.exp(mean + reach):.4f}.\n"
    )


if __name__ == "__main__":
    main()
