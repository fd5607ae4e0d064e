"""Advice beside what it brought: a ladder of `cifar` that verifies all of its advice, and the table of the remedies.

Exits with 1 where fewer than 80 % of them are faster, where the middle of the prediction is off by more than 25 % of
the measured gain in the median, or where nothing was advised.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from laptime.records import Advice, Finding, Measured

ROOT = Path(__file__).resolve().parents[2]
# The baseline and two rungs on the way to the fastest.
VARIANTS = ("cpu-baseline", "cpu-baseline+resident+no-reads", "cpu-baseline+resident+no-reads+dead-taps")
LEAST_FASTER, MOST_OFF = 0.80, 0.25
_SIZE = ("--limit-train", "1280", "--limit-test", "500", "--epochs", "2")
# Several rounds, since advice rests on all of them, and how a shared machine drifts shows between rounds.
_ROUNDS = 3

Row = tuple[str, Finding]


def main() -> int:
    """Runs the ladder, or takes finished ones, and prints the table as Markdown."""
    parser = argparse.ArgumentParser(prog="scripts/bench verified", description=__doc__)
    parser.add_argument("--data", default="auto", help="as in laptime optimize")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, help="the baseline and what else is advised on")
    parser.add_argument("--most", default="all", help="remedies of each variant")
    parser.add_argument("--repeats", type=int, default=_ROUNDS, help="rounds; more where the machine drifts more")
    parser.add_argument("--pool", type=Path, nargs="+", help="folders of finished ladders; nothing is run")
    asked = parser.parse_args()
    folders = asked.pool or [_ladder(asked)]
    rows = [row for folder in folders for row in remedies(folder)]
    sys.stdout.write(table(rows))
    return 0 if good(rows) else 1


def _ladder(asked: argparse.Namespace) -> Path:
    out = ROOT / ".laptime" / "bench" / f"verified-{time.strftime('%Y%m%d-%H%M%S')}"
    command = [sys.executable, "-m", "laptime", "optimize", "cifar", "--data", asked.data, *_SIZE, "--out", str(out)]
    command += ["--repeats", str(asked.repeats), "--variants", ",".join(asked.variants)]
    subprocess.run([*command, "--verify-most", asked.most], check=True)
    return out


def remedies(ladder: Path) -> Iterator[Row]:
    """What a ladder advised and ran: the variant advised on, and the finding."""
    for path in sorted(ladder.glob("*/advice.json")):
        advice = Advice.model_validate_json(path.read_text(encoding="utf-8"))
        yield from ((advice.subject, f) for f in advice.findings if f.measured is not None)


def table(rows: Sequence[Row]) -> str:
    """Predicted beside measured; below it what share of the remedies gained, and how far the middles were off."""
    lines = [
        "| advised on | rule | remedy | predicted | measured (95 %) | middle off by | quality |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(subject, finding) for subject, finding in rows]
    off = _off_by(rows)
    if rows:
        by = "none was measured" if off is None else f"the middle is off by {off:.0%} of the gain in the median"
        lines += ["", f"{_faster(rows)} of {len(rows)} remedies are faster; {by}."]
    return "\n".join(lines) + "\n"


def good(rows: Sequence[Row]) -> bool:
    """Whether both goals are met; a remedy that failed, or could not be run, is none that is faster."""
    off = _off_by(rows)
    return off is not None and off <= MOST_OFF and _faster(rows) >= LEAST_FASTER * len(rows)


def _line(subject: str, finding: Finding) -> str:
    measured = finding.measured or Measured()
    low, high = finding.gain
    cells = [f"`{subject}`", finding.id, f"`{finding.variant}`"]
    cells.append(f"{low:.0%} to {high:.0%} of {finding.step_ms_now:.1f} ms")
    if measured.gain is None:
        cells += [f"not measured: {measured.error}", "–", "–"]
    else:
        within = "" if measured.gain_low is None else f" ({measured.gain_low:.0%} to {measured.gain_high or 0:.0%})"
        quality = measured.quality.removeprefix("quality ") or "not said"
        cells += [f"{measured.gain:.0%}{within}", f"{_off(finding):.0%}", quality]
    return f"| {' | '.join(cells)} |"


def _gain(finding: Finding) -> float | None:
    return finding.measured.gain if finding.measured else None


def _off(finding: Finding) -> float:
    """How far the middle of the prediction is from the measured gain, as a share of that gain."""
    gain = _gain(finding)
    return abs(sum(finding.gain) / 2 - gain) / abs(gain) if gain else float("inf")


def _faster(rows: Sequence[Row]) -> int:
    return sum((_gain(finding) or 0.0) > 0 for _, finding in rows)


def _off_by(rows: Sequence[Row]) -> float | None:
    """The median over the remedies that were measured; None without one."""
    off = [_off(finding) for _, finding in rows if _gain(finding) is not None]
    return median(off) if off else None


if __name__ == "__main__":
    sys.exit(main())
