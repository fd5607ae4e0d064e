"""The page of `scripts/bench gate --report`: what pairs without a change and whole gates have shown."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laptime.catalogue import find_preset, find_workload
from laptime.gate.decision import decide
from laptime.gate.history import resampled
from laptime.gate.noise import FEWEST, known_noise
from laptime.gate.policy import LOOKS, Policy
from laptime.gate.records import GateRecord, PairRecord, ProcessRecord, read_gate
from laptime.gate.student import quantile

_GATES = 10_000
_CALLS = 300
_VERDICTS = ("not_regressed", "improved", "regressed", "inconclusive")


def taken(folder: Path) -> list[GateRecord]:
    """The batches of pairs without a change that a folder holds."""
    return [read_gate(path) for path in sorted(folder.glob("aa-*.json"))]


def cut_down(record: GateRecord) -> dict[str, Any]:
    """A batch less what the page does not show; `laptime gate --replay` reads it."""
    sides = {"side", "seed", "index", "epoch_s", "steps", "wall_s"}
    pair = ("number", "order", "seed", "flags", "counted", "by_turns", "together_s")
    whole = ("id", "mode", "workload", "variant", "fingerprint", "limit_train", "started_at")
    found = record.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        include={
            **dict.fromkeys(whole, True),
            "machine": {"fingerprint", "cpu", "cores", "memory_gib", "gpus", "os", "python", "torch"},
            "base": {"sha"},
            "pairs": {"__all__": {**dict.fromkeys(pair, True), "base": sides, "head": sides}},
        },
    )
    return {"schema": record.schema_, "status": "done", **found}


@dataclass(frozen=True)
class Group:
    """Pairs of one machine and one training, in the order in which they were taken."""

    records: tuple[GateRecord, ...]

    @property
    def log_ratios(self) -> list[float]:
        return [value for record in self.records for value in record.log_ratios]

    @property
    def counted(self) -> list[PairRecord]:
        return [p for r in self.records for p in r.counted]

    @property
    def noise(self) -> float | None:
        """As a gate would know it on this machine."""
        return known_noise(self.log_ratios)


def groups_of(records: Sequence[GateRecord]) -> list[Group]:
    """Batches by machine and training, since noise is a machine's own; the oldest first.

    Machines with few pairs are left out: gates drawn from those would tell of their own mean.
    """
    found: dict[tuple[object, ...], list[GateRecord]] = {}
    for record in sorted(records, key=lambda r: r.started_at):
        machine, trained = record.machine, (record.workload, record.variant, record.limit_train, record.by_turns)
        epochs = len(record.counted[0].base.epoch_s) if record.counted else 0
        key = (machine.cpu, machine.gpus, machine.cores, machine.python, machine.torch, *trained, epochs)
        found.setdefault(key, []).append(record)
    return [Group(tuple(some)) for some in found.values() if sum(len(r.counted) for r in some) >= FEWEST]


def page(folder: Path, kept: Path) -> str:
    """The page in Markdown, from pairs that are kept and those in a folder; raises SystemExit where there are none."""
    records = [read_gate(path) for path in sorted(kept.glob("*.json"))] + taken(folder)
    groups = groups_of(records)
    if not groups:
        raise SystemExit(f"there are no {FEWEST} pairs of one machine yet: scripts/bench gate --pairs 150")
    parts = (_conditions(groups), _noise(groups), _resampled(groups), _deciding(groups), _wholes(folder))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _conditions(groups: Sequence[Group]) -> list[str]:
    lines = ["# The gate: pairs without a change", ""]
    for number, group in enumerate(groups, start=1):
        first, machine = group.records[0], group.records[0].machine
        epochs = [s for p in group.counted for side in (p.base, p.head) for s in side.epoch_s]
        days = sorted({time.strftime("%Y-%m-%d", time.gmtime(r.started_at)) for r in group.records})
        commits = ", ".join(dict.fromkeys(r.base.sha[:12] for r in group.records))
        lines.append(
            f"{number}. {', '.join((*machine.gpus, machine.cpu))}, {machine.cores} cores, {machine.memory_gib} GiB, "
            f"{machine.os}; Python {machine.python}, torch {machine.torch}; "
            f"{' to '.join(dict.fromkeys((days[0], days[-1])))}; commit {commits}. `{first.workload}`, "
            f"`{first.variant}`, {first.limit_train or 'all'} images, one epoch dropped and "
            f"{len(group.counted[0].base.epoch_s)} kept in each process, epochs of {statistics.median(epochs):.1f} s, "
            f"{'by turns' if first.by_turns else 'processes one after the other'}."
        )
    return lines


def _noise(groups: Sequence[Group]) -> list[str]:
    lines = [
        "## Pairs of base against base",
        "",
        f"{sum(len(g.counted) for g in groups)} pairs. A flagged one (others on the machine, time that the host took) "
        "is repeated once. Noise: of a pair, s0 by the median deviation.",
        "",
        "| machine | pairs | repeated | s0 | standard deviation | median | largest | epochs of a process differ by "
        "(CV) | cost of a pair over its training |",
        f"|{'---|' * 9}",
    ]
    for number, group in enumerate(groups, start=1):
        d, counted = group.log_ratios, group.counted
        costs = [p.took_s / (_trained_s(p.base) + _trained_s(p.head)) for p in counted]
        within = [statistics.pstdev(s.epoch_s) / statistics.fmean(s.epoch_s) for p in counted for s in (p.base, p.head)]
        cells = (
            number,
            len(counted),
            sum(not p.counted for r in group.records for p in r.pairs),
            f"{100 * (group.noise or statistics.stdev(d)):.2f} %",
            f"{100 * statistics.stdev(d):.2f} %",
            f"{100 * statistics.median(d):+.2f} %",
            f"{100 * max(map(abs, d)):.0f} %",
            f"{100 * statistics.median(within):.1f} %",
            f"{statistics.median(costs):.2f}",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _trained_s(process: ProcessRecord) -> float:
    """Training of one process: its kept epochs and the dropped one, which `laptime run` cuts to the preset's steps."""
    epoch_s = statistics.median(process.epoch_s)
    warm_up = find_preset(find_workload("cifar"), "full").warmup_steps or process.steps
    return sum(process.epoch_s) + epoch_s * min(1.0, warm_up / max(process.steps, 1))


def _resampled(groups: Sequence[Group]) -> list[str]:
    policy = Policy()
    lines = [
        f"## {_GATES:,} gates drawn from the pairs of each machine, in blocks of two",
        "",
        f"| machine | noise | change put in | {' | '.join(_VERDICTS).replace('_', ' ')} | pairs in the middle |",
        f"|---|---|---|{'---|' * (len(_VERDICTS) + 1)}",
    ]
    for number, group in enumerate(groups, start=1):
        for name, known in (("known", group.noise), ("not known", None)):
            for change in (0.0, policy.limit, -policy.limit):
                found = resampled([value + change for value in group.log_ratios], known, policy, _GATES)
                pairs = _pairs_taken(group.log_ratios, change, known)
                shares = " | ".join(f"{100 * found[v] / found.total():.2f} %" for v in _VERDICTS)
                percent = f"{100 * math.expm1(change):+.0f} %" if change else "none"
                lines.append(f"| {number} | {name} | {percent} | {shares} | {round(statistics.median(pairs))} |")
    return lines


def _pairs_taken(d: Sequence[float], change: float, noise: float | None) -> list[int]:
    """Pairs of gates over consecutive pairs, one beginning at each."""
    starts = range(max(1, len(d) - LOOKS[-1]))
    verdicts = [decide([value + change for value in d[i : i + LOOKS[-1]]], noise) for i in starts]
    return [v.state.n for v in verdicts if v.state is not None]


def _deciding(groups: Sequence[Group]) -> list[str]:
    """What a decision on the last planned count of pairs costs a process that has made none before."""
    d = [value for group in groups for value in group.log_ratios]
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
