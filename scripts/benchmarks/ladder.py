"""Runs a ladder through `laptime optimize` and writes its table and the ledger into docs/benchmarks/."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from laptime.compare.load import load
from laptime.ledger import main as note_in_ledger

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"


def main(arguments: list[str]) -> int:
    """Options are those of `laptime optimize cifar`; the preset is `full` unless given."""
    folder = ROOT / ".laptime" / "bench" / time.strftime("%Y%m%d-%H%M%S")
    command = [sys.executable, "-m", "laptime", "optimize", "cifar", "--preset", "full", "--out", str(folder)]
    code = subprocess.run([*command, *arguments], check=False).returncode
    if not (folder / "comparison.md").is_file():
        return code or 1
    ladder, _ = load(folder)
    assert ladder is not None
    BENCHMARKS.mkdir(parents=True, exist_ok=True)
    note_in_ledger([str(folder), str(BENCHMARKS / "ledger.json")])
    part = f"-{ladder.limit_train}" if ladder.limit_train else ""
    name = f"{time.strftime('%Y-%m-%d')}-{ladder.workload}-{ladder.device}{part}"
    table = (folder / "comparison.md").read_text(encoding="utf-8")
    options = " ".join(_without_data(arguments))
    (BENCHMARKS / f"{name}.md").write_text(
        f"{table}\nMade by `scripts/bench ladder --data DIR {options}`.\n", encoding="utf-8"
    )
    sys.stdout.write(f"\nWrote docs/benchmarks/{name}.md and the ledger.\n")
    return code


def _without_data(arguments: list[str]) -> list[str]:
    """The arguments without the folder of the data, which is a path of one machine."""
    if "--data" in arguments:
        place = arguments.index("--data")
        return arguments[:place] + arguments[place + 2 :]
    return arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
