"""How long the commands take that people wait for: laptime --help, laptime list, the comparison of 1,000 runs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from laptime.records import EpochRecord, RunRecord, write_json
from laptime.spec import DataSpec, RunSpec

_ROUNDS = 7
DATA = DataSpec(asked="", kind="folder", digest="", path="", classes=("a", "b"), train_count=100, test_count=100)


def seconds(*arguments: str) -> float:
    """Median seconds of a command."""
    times = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "laptime", *arguments], capture_output=True, check=True)
        times.append(time.perf_counter() - begin)
    return median(times)


def main() -> None:
    """Prints the medians as Markdown."""
    with tempfile.TemporaryDirectory() as name:
        for number in range(1000):
            epochs = tuple(EpochRecord(index=i, epoch_s=1 + (number + i) % 7 / 100, samples=100) for i in range(3))
            spec = RunSpec(workload="cifar", variant=f"cpu-baseline+v{number // 10}", data=DATA, repeat=number % 10)
            write_json(Path(name) / f"{number:04}" / "record.json", RunRecord(status="done", spec=spec, epochs=epochs))
        rows = (
            ("`laptime --help`", seconds("--help")),
            ("`laptime list`", seconds("list")),
            ("`laptime compare` of 1,000 records (100 variants, 10 rounds)", seconds("compare", name)),
        )
    for what, duration in rows:
        sys.stdout.write(f"- {what}: {duration:.2f} s (median of {_ROUNDS})\n")


if __name__ == "__main__":
    main()
