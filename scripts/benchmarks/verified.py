"""Advice beside what it brought: ladders of `cifar` with --verify-advice, and the table of all their remedies."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

from laptime.records import Advice, Finding, Measured

ROOT = Path(__file__).resolve().parents[2]
# The baseline, and of each ladder its middle rung.
MIDDLE = ("cpu-baseline+resident+no-reads", "cpu-baseline+resident+no-reads+dead-taps")
_SIZE = ("--limit-train", "1280", "--limit-test", "500", "--epochs", "2", "--repeats", "1")


def main() -> int:
    """Runs the ladders, or takes finished ones, and prints the table as Markdown."""
    parser = argparse.ArgumentParser(prog="scripts/bench verified", description=__doc__)
    parser.add_argument("--data", default="auto", help="as in laptime optimize")
    parser.add_argument("--middle", nargs="+", default=MIDDLE, help="a ladder for each")
    parser.add_argument("--pool", type=Path, nargs="+", help="folders of finished ladders; nothing is run")
    asked = parser.parse_args()
    folders = asked.pool or [_ladder(asked.data, name) for name in asked.middle]
    rows = [row for folder in folders for row in remedies(folder)]
    sys.stdout.write(table(rows))
    return 0 if rows else 1


def _ladder(data: str, middle: str) -> Path:
    out = ROOT / ".laptime" / "bench" / f"verified-{time.strftime('%Y%m%d-%H%M%S')}"
    command = [sys.executable, "-m", "laptime", "optimize", "cifar", "--data", data, *_SIZE, "--out", str(out)]
    subprocess.run([*command, "--variants", f"cpu-baseline,{middle}", "--verify-advice"], check=True)
    return out


def remedies(ladder: Path) -> Iterator[tuple[str, Finding]]:
    """What a ladder advised and ran: the variant advised on, and the finding."""
    for path in sorted(ladder.glob("*/advice.json")):
        advice = Advice.model_validate_json(path.read_text(encoding="utf-8"))
        yield from ((advice.subject, f) for f in advice.findings if f.measured is not None)


def table(rows: Iterable[tuple[str, Finding]]) -> str:
    """Predicted beside measured; below it what share of the remedies gained, and how far the middles were off."""
    lines = ["| advised on | remedy | predicted | measured (95 %) | middle off by |", "|---|---|---|---|---|"]
    gains: list[float] = []
    errors: list[float] = []
    for subject, finding in rows:
        measured = finding.measured or Measured()
        low, high = finding.gain
        said = f"{low:.0%} to {high:.0%} of {finding.step_ms_now:.1f} ms"
        if measured.gain is None:
            lines.append(f"| `{subject}` | `{finding.variant}` | {said} | not measured: {measured.error} | – |")
            continue
        gains.append(measured.gain)
        off = abs((low + high) / 2 - measured.gain) / abs(measured.gain) if measured.gain else float("inf")
        errors.append(off)
        within = "" if measured.gain_low is None else f" ({measured.gain_low:.0%} to {measured.gain_high or 0:.0%})"
        lines.append(f"| `{subject}` | `{finding.variant}` | {said} | {measured.gain:.0%}{within} | {off:.0%} |")
    if gains:
        faster = sum(gain > 0 for gain in gains)
        off_by = f"the middle is off by {median(errors):.0%} of the gain in the median"
        lines += ["", f"{faster} of {len(gains)} remedies are faster; {off_by}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
