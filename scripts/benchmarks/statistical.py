"""Each statistical optimization alone, over the baseline and over the optimized variant, by `laptime optimize`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

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
    """Options are those of `laptime optimize cifar`; three epochs and two rounds unless given."""
    device = _value(arguments, "--device") or "cpu"
    variants = [
        f"{device}-optimized",
        *(f"{device}-baseline+{name}" for name in OVER_BASELINE),
        *(f"{device}-optimized+{name}" for name in OVER_OPTIMIZED),
    ]
    folder = ROOT / ".laptime" / "bench" / f"statistical-{time.strftime('%Y%m%d-%H%M%S')}"
    command = [sys.executable, "-m", "laptime", "optimize", "cifar", "--preset", "full"]
    defaults = ["--epochs", "3", "--repeats", "2", "--device", device]
    given = [*_unless(arguments, defaults), *arguments]
    code = subprocess.run(
        [*command, "--out", str(folder), "--variants", ",".join(variants), *given], check=False
    ).returncode
    if (folder / "comparison.md").is_file():
        BENCHMARKS.mkdir(parents=True, exist_ok=True)
        table = (folder / "comparison.md").read_text(encoding="utf-8")
        target = BENCHMARKS / f"{time.strftime('%Y-%m-%d')}-statistical-{device}.md"
        target.write_text(f"{table}\nMade by `scripts/bench statistical`.\n", encoding="utf-8")
        sys.stdout.write(f"\nWrote {target.relative_to(ROOT)}.\n")
    return code


def _value(arguments: list[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments[:-1] else None


def _unless(arguments: list[str], defaults: list[str]) -> list[str]:
    """The pairs of `defaults` whose option is not given."""
    pairs = zip(defaults[::2], defaults[1::2], strict=True)
    return [word for pair in pairs if pair[0] not in arguments for word in pair]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
