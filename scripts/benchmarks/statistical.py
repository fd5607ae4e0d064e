"""Each statistical optimization alone, over the baseline and over the optimized variant, by `laptime optimize`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from ladder import table_of

from laptime.records import read_ladder

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
OVER_BASELINE = (
    "onecycle",
    "linear-decay",
    "label-smoothing",
    "flip",
    "flip:mode=random",
    "crop",
    "crop:mode=reflect",
    "flip+crop",
    "decay",
    "ema",
    "progressive-resizing",
    "selective-backprop",
    "sgd-nesterov",
    "sgd-nesterov+onecycle",
)
# OneCycle is in the optimized variant already.
OVER_OPTIMIZED = tuple(name for name in OVER_BASELINE if "onecycle" not in name)


def main(arguments: list[str]) -> int:
    """Options are those of `laptime optimize cifar` and `--over`; three epochs and two rounds unless given."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--over", choices=("baseline", "optimized", "both"), default="both")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", default="3")
    parser.add_argument("--repeats", default="2")
    known, others = parser.parse_known_args(arguments)
    added = {"baseline": OVER_BASELINE, "optimized": OVER_OPTIMIZED}
    sides = [side for side in added if known.over in (side, "both")]
    variants = [
        f"{known.device}-optimized",
        *(f"{known.device}-{side}+{name}" for side in sides for name in added[side]),
    ]
    folder = ROOT / ".laptime" / "bench" / f"statistical-{time.strftime('%Y%m%d-%H%M%S')}"
    command = [sys.executable, "-m", "laptime", "optimize", "cifar", "--preset", "full", "--device", known.device]
    command += ["--epochs", known.epochs, "--repeats", known.repeats, "--variants", ",".join(variants)]
    code = subprocess.run([*command, "--out", str(folder), *others], check=False).returncode
    if (folder / "comparison.md").is_file():
        BENCHMARKS.mkdir(parents=True, exist_ok=True)
        table = table_of(folder, read_ladder(folder / "ladder.json"))
        target = BENCHMARKS / f"{time.strftime('%Y-%m-%d')}-statistical-{known.device}.md"
        target.write_text(f"{table}\nMade by `scripts/bench statistical --over {known.over}`.\n", encoding="utf-8")
        sys.stdout.write(f"\nWrote {target.relative_to(ROOT)}.\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
