"""Runs a ladder through `laptime optimize` and writes its table and the ledger into docs/benchmarks/."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

from laptime.compare.load import load
from laptime.ladder.request import LadderRequest, kept_request
from laptime.ledger import main as note_in_ledger
from laptime.records import LadderRecord

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"


def main(arguments: list[str]) -> int:
    """Options beside its own are those of `laptime optimize`; the preset is `full` unless given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="cifar")
    parser.add_argument("--of", type=Path, metavar="FOLDER", help="a ladder that was run: only its table is written")
    own, options = parser.parse_known_args(arguments)
    code, folder = 0, own.of
    if folder is None:
        folder = ROOT / ".laptime" / "bench" / time.strftime("%Y%m%d-%H%M%S")
        command = [sys.executable, "-m", "laptime", "optimize", own.workload, "--preset", "full", "--out", str(folder)]
        code = subprocess.run([*command, *options], check=False).returncode
    if not (folder / "comparison.md").is_file():
        return code or 1
    ladder, _ = load(folder)
    assert ladder is not None
    BENCHMARKS.mkdir(parents=True, exist_ok=True)
    note_in_ledger([str(folder), str(BENCHMARKS / "ledger.json")])
    part = f"-{ladder.limit_train}" if ladder.limit_train else ""
    day = time.strftime("%Y-%m-%d", time.gmtime(ladder.started_at))
    name = f"{day}-{ladder.workload}-{ladder.device}{part}"
    table = table_of(folder, ladder)
    how = f"gpu --workload {ladder.workload}" if ladder.id.endswith("-gpu") else f"ladder --workload {ladder.workload}"
    made = f"Made by `scripts/bench {how} {_asked(ladder)}`."
    (BENCHMARKS / f"{name}.md").write_text(f"{table}\n{made}\n", encoding="utf-8")
    sys.stdout.write(f"\nWrote docs/benchmarks/{name}.md and the ledger.\n")
    return code


def table_of(folder: Path, ladder: LadderRecord) -> str:
    """A ladder's table without the places of its data and of this checkout, which are those of some machine."""
    place = f"--data {shlex.quote(ladder.data.asked)}"
    table = (folder / "comparison.md").read_text(encoding="utf-8")
    return table.replace(place, "--data DIR").replace(f"{ROOT}/", "")


def _asked(ladder: LadderRecord) -> str:
    """What the ladder was asked for."""
    usual = kept_request(LadderRequest())
    words = ["--data DIR" if Path(ladder.data.asked).exists() else f"--data {ladder.data.asked}"]
    if ladder.request is not None:
        words.append(f"--preset {ladder.preset}")
    for name, value in (ladder.request or {}).items():
        if name in ("workload", "data", "preset", "tracking_uri") or value == usual[name]:
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{option}")
        else:
            words.append(f"--{option} {','.join(value) if isinstance(value, list) else value}")
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
