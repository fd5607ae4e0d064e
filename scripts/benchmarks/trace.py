"""What a long trace costs `laptime advise`: seconds, also of CPU, and memory by size; its steps are a short trace's.

Each reading is a process of its own, its start included; sizes in turn, medians and the highest memory.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import track

_RECORDED = Path("tests/data/traces/cpu.json.gz")
_MIB = 2**20
_IDS = ("External id", "correlation")


def repeated(source: Path, mib: float, to: Path) -> int:
    """Writes a trace of at least so many MiB of text; returns how many times the source's steps are in it."""
    packed = source.suffix == ".gz"
    trace = json.loads(gzip.decompress(source.read_bytes()) if packed else source.read_bytes())
    events = [e for e in trace["traceEvents"] if "ts" in e]
    begin = min(e["ts"] for e in events)
    period = max(e["ts"] + e.get("dur", 0) for e in events) - begin + 1
    most = max((int(e.get("args", {}).get(key, 0)) for e in events for key in _IDS), default=0) + 1
    rest = [e for e in trace["traceEvents"] if "ts" not in e]
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    count = 0
    with to.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps({"schemaVersion": 1, **head})[:-1] + ', "traceEvents": [')
        stream.write(",\n".join(json.dumps(e, indent=1) for e in rest or [{}]))
        while stream.tell() < mib * _MIB:
            for event in events:
                stream.write(",\n" + json.dumps(_moved(event, count * period, count * most), indent=1))
            count += 1
        stream.write("]}")
    return count


def _moved(event: dict[str, Any], by_us: float, by_id: int) -> dict[str, Any]:
    moved = copy.deepcopy(event)
    moved["ts"] += by_us
    for place in (moved, moved.get("args", {})):
        for key in (*_IDS, "id"):
            if isinstance(place.get(key), int):
                place[key] += by_id
    return moved


def advised(path: Path) -> tuple[float, float, float]:
    """Seconds, seconds of CPU and MiB of one `laptime advise`."""
    begin = time.perf_counter()
    running = subprocess.Popen([sys.executable, "-m", "laptime", "advise", str(path), "--json"], stdout=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.read()
    _, code, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(code)
    if running.returncode:
        sys.exit(f"laptime advise {path} ended with {running.returncode}")
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Prints a row for each size as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=_RECORDED, help="whose steps are repeated")
    parser.add_argument("--mib", type=float, nargs="+", default=[20.0, 100.0, 500.0])
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    found: dict[float, list[tuple[float, float, float]]] = {mib: [] for mib in asked.mib}
    with tempfile.TemporaryDirectory() as name:
        paths = {mib: Path(name) / f"{mib:g}.json" for mib in asked.mib}
        for mib, path in paths.items():
            repeated(asked.trace, mib, path)
        for mib in track([m for _ in range(asked.rounds) for m in asked.mib], "reading", transient=True):
            found[mib].append(advised(paths[mib]))
        sizes = {mib: path.stat().st_size / _MIB for mib, path in paths.items()}
    sys.stdout.write(f"Steps of {asked.trace.name}, medians of {asked.rounds}, the highest memory.\n\n")
    sys.stdout.write("| MiB of text | s | s of CPU | MiB of memory |\n|---|---|---|---|\n")
    for mib, runs in found.items():
        seconds, cpu, memory = zip(*runs, strict=True)
        sys.stdout.write(f"| {sizes[mib]:,.0f} | {median(seconds):.2f} | {median(cpu):.2f} | {max(memory):.0f} |\n")


if __name__ == "__main__":
    main()
