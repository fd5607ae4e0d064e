"""How the gate does on this machine: pairs without a change, gates drawn from them, whole gates with a change in head.

    scripts/bench gate --pairs 150 [-- OPTIONS]             pairs of base against base until there are so many;
                                                            cut off, it goes on where it was
    scripts/bench gate --whole 8 --change 0.10 [-- OPTIONS] whole gates; head computes so much longer in each step,
                                                            or with -0.10 base does
    scripts/bench gate --keep                               puts the pairs taken here with those of other machines and
                                                            days, in docs/benchmarks/gate-pairs
    scripts/bench gate --report FILE                        the page: noise, 10,000 gates drawn from the pairs that are
                                                            kept or taken here, verdicts of the whole gates

OPTIONS are those of `laptime gate cifar`. Let nothing else run meanwhile. All of it stands in .laptime/bench/gate.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gate_report import cut_down, page, taken

from laptime.gate.records import read_gate

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".laptime" / "bench" / "gate"
KEPT = ROOT / "docs" / "benchmarks" / "gate-pairs"
SOME = 10
# Put at the end of a step's file: after each training step it computes for a share of that step's own time. The step's
# last value is read first, so that on a GPU the wait counts as the step's.
LONGER = """

def _longer(train_epoch):
    import time

    def slowed(p, epoch):
        begin = time.perf_counter()
        for output in train_epoch(p, epoch):
            float(output.loss_sum)
            until = time.perf_counter() + {share} * (time.perf_counter() - begin)
            while time.perf_counter() < until:
                pass
            yield output
            begin = time.perf_counter()

    return slowed


train_epoch = _longer(train_epoch)
"""


def main(arguments: list[str]) -> int:
    """The command."""
    own, options = _split(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--whole", type=int)
    parser.add_argument("--change", type=float, default=0.10)
    given = parser.parse_args(own)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if given.pairs:
        _take(given.pairs, options)
    if given.whole:
        _gates(given.whole, given.change, options)
    if given.keep:
        _keep()
    if given.report:
        given.report.write_text(page(FOLDER, KEPT), encoding="utf-8")
    return 0


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:place], arguments[place + 1 :]


def _take(wanted: int, options: Sequence[str]) -> None:
    """Some pairs at a time, each batch a file of its own: an interruption costs no pair that was measured."""
    while (have := sum(len(r.counted) for r in taken(FOLDER))) < wanted:
        path = next(p for n in itertools.count() if not (p := FOLDER / f"aa-{n:03}.json").exists())
        _say(f"{have} of {wanted} pairs")
        code = _gate(["--aa", str(min(SOME, wanted - have)), "--json", str(path), *options])
        if not path.is_file() or not read_gate(path).pairs:
            path.unlink(missing_ok=True)
            raise SystemExit(f"no pairs were taken (exit code {code})")


def _keep() -> None:
    KEPT.mkdir(exist_ok=True)
    for path in sorted(FOLDER.glob("aa-*.json")):
        record = read_gate(path)
        if record.counted:  # else broken off before its first pair
            (KEPT / f"{record.id}.json").write_text(json.dumps(cut_down(record)) + "\n", encoding="utf-8")
        path.unlink()


def _gates(count: int, change: float, options: Sequence[str]) -> None:
    """Whole gates of two folders, one of which computes longer."""
    base, head = (FOLDER / name for name in ("base", "head"))
    for folder in (base, head):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder / name)
    slowed = head if change > 0 else base
    loop = slowed / "src" / "laptime" / "engine" / "loop.py"
    share = change if change > 0 else 1 / (1 + change) - 1
    loop.write_text(loop.read_text(encoding="utf-8") + LONGER.format(share=share), encoding="utf-8")
    found: Counter[str] = Counter()
    for number in range(count):
        path = FOLDER / f"whole{change:+.2f}-{number:02}.json"
        _gate(["--base-dir", str(base), "--head-dir", str(head), "--json", str(path), *options])
        outcome = read_gate(path).outcome
        assert outcome is not None
        found[outcome.kind] += 1
        _say(f"{number + 1} of {count}: {outcome.sentence}")
    _say(f"change {change:+.0%}: {dict(found)}")


def _gate(arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "laptime", "gate", "cifar", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
