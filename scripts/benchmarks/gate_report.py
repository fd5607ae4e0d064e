"""The page of `scripts/bench gate --report`: what pairs without a change and whole gates have shown."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from laptime.gate.decision import decide
from laptime.gate.history import resampled
from laptime.gate.noise import known_noise
from laptime.gate.policy import LOOKS, Policy
from laptime.gate.records import GateRecord, ProcessRecord, read_gate
from laptime.gate.student import quantile

_CALLS = 300
_VERDICTS = ("not_regressed", "improved", "regressed", "inconclusive")


def taken(folder: Path) -> list[GateRecord]:
    """The batches of pairs without a change."""
    return [read_gate(path) for path in sorted(folder.glob("aa-*.json"))]


def page(folder: Path) -> str:
    """The page in Markdown, from the files of a folder; raises SystemExit where there are no pairs."""
    records = taken(folder)
    if not records:
        raise SystemExit("there are no pairs yet: scripts/bench gate --pairs 150")
    parts = (_conditions(records), _noise(records), _resampled(records), _deciding(records), _wholes(folder))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _conditions(records: Sequence[GateRecord]) -> list[str]:
    first, machine = records[0], records[0].machine
    kept = first.counted[0].base.epoch_s
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(r.started_at)) for r in records})
    return [
        "# The gate on this machine",
        "",
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.os}; Python {machine.python}, torch "
        f"{machine.torch}; {' to '.join(dict.fromkeys((days[0], days[-1])))}; commit {first.base.sha[:12]}.",
        "",
        f"`{first.workload}`, `{first.variant}`, {first.limit_train or 'all'} images, one epoch dropped and "
        f"{len(kept)} kept in each process, epochs of {statistics.median(kept):.1f} s.",
    ]


def _noise(records: Sequence[GateRecord]) -> list[str]:
    d = [value for record in records for value in record.log_ratios]
    counted = [p for r in records for p in r.counted]
    flagged = sum(bool(p.flags) for r in records for p in r.pairs)
    costs = [(p.base.wall_s + p.head.wall_s) / (_trained_s(p.base) + _trained_s(p.head)) for p in counted]
    within = [statistics.pstdev(s.epoch_s) / statistics.fmean(s.epoch_s) for p in counted for s in (p.base, p.head)]
    return [
        "## Pairs of base against base",
        "",
        f"- {len(d)} pairs counted; {flagged} were flagged (others on the machine); such a pair is repeated once.",
        f"- Noise of a pair: s0 {100 * (known_noise(d) or 0):.2f} % (by the median deviation), standard deviation "
        f"{100 * statistics.stdev(d):.2f} %, median {100 * statistics.median(d):+.2f} %, largest "
        f"{100 * max(map(abs, d)):.0f} %.",
        f"- Epochs of one process differ by {100 * statistics.median(within):.1f} % (CV, median over processes).",
        f"- A pair costs {statistics.median(costs):.2f} times its training (median).",
    ]


def _trained_s(process: ProcessRecord) -> float:
    """Training of one process: its kept epochs and the dropped one, which takes about as long."""
    return sum(process.epoch_s) + statistics.median(process.epoch_s)


def _resampled(records: Sequence[GateRecord]) -> list[str]:
    d, policy = [value for record in records for value in record.log_ratios], Policy()
    lines = [
        "## 10,000 gates drawn from these pairs, in blocks of two",
        "",
        f"| noise | change put in | {' | '.join(v.replace('_', ' ') for v in _VERDICTS)} | pairs in the middle |",
        f"|---|---|{'---|' * (len(_VERDICTS) + 1)}",
    ]
    for name, known in (("known", known_noise(d)), ("not known", None)):
        for change in (0.0, policy.limit, -policy.limit):
            found = resampled([value + change for value in d], known, policy)
            shares = " | ".join(f"{100 * found[v] / found.total():.2f} %" for v in _VERDICTS)
            percent = f"{100 * math.expm1(change):+.0f} %" if change else "none"
            lines.append(f"| {name} | {percent} | {shares} | {_middle_pairs(d, change, known)} |")
    return lines


def _middle_pairs(d: Sequence[float], change: float, noise: float | None) -> int:
    """Median pairs of gates over consecutive pairs, one beginning at each."""
    starts = range(max(1, len(d) - LOOKS[-1]))
    verdicts = [decide([value + change for value in d[i : i + LOOKS[-1]]], noise) for i in starts]
    return round(statistics.median(v.state.n for v in verdicts if v.state is not None))


def _deciding(records: Sequence[GateRecord]) -> list[str]:
    """What a decision on the last planned count of pairs costs a process that has made none before."""
    d = [value for record in records for value in record.log_ratios]
    took = []
    for width in (0.0, 0.3, 1.0):
        made = [d[i % len(d)] + width * (-1) ** i for i in range(LOOKS[-1])]
        took.append(statistics.median(_decide_ms(made) for _ in range(_CALLS)))
    return [
        "## Deciding",
        "",
        f"`decide` on {LOOKS[-1]} pairs takes {took[0]:.1f} ms, and {min(took[1:]):.1f} to {max(took[1:]):.1f} ms "
        f"where they scatter so much that no look decides (medians of {_CALLS} calls, no quantile known before; taken "
        "with this page).",
    ]


def _decide_ms(log_ratios: Sequence[float]) -> float:
    quantile.cache_clear()
    begin = time.perf_counter()
    decide(log_ratios)
    return 1000 * (time.perf_counter() - begin)


def _wholes(folder: Path) -> list[str]:
    gates: dict[str, list[GateRecord]] = {}
    for path in sorted(folder.glob("whole*.json")):
        gates.setdefault(path.name[len("whole") :].rpartition("-")[0], []).append(read_gate(path))
    lines = [
        "## Whole gates",
        "",
        "| head computes longer by | gates | verdicts | pairs | measured |",
        "|---|---|---|---|---|",
    ]
    for change, found in gates.items():
        outcomes = [r.outcome for r in found if r.outcome is not None]
        kinds = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in Counter(o.kind for o in outcomes).items())
        states = [o.decision.state for o in outcomes if o.decision and o.decision.state]
        ratios = sorted(100 * (s.ratio - 1) for s in states)
        span = f"{ratios[0]:+.1f} % to {ratios[-1]:+.1f} %" if ratios else "nothing"
        pairs = ", ".join(str(s.n) for s in states)
        lines.append(f"| {float(change):+.0%} | {len(found)} | {kinds} | {pairs} | {span} |")
    return lines if gates else []
