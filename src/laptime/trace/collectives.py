"""Communication between ranks: NCCL's kernels on the device, gloo's work on the host."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from laptime.records import CollectiveRow
from laptime.trace.events import KERNEL, NOTE, OP, Event
from laptime.trace.intervals import Span, length, merge, subtract
from laptime.trace.steps import Step

_NCCL = ("nccl", "rccl")


def is_collective(row: Event) -> bool:
    """Whether a kernel is NCCL's, or an event of the host is gloo's work."""
    if row.kind == KERNEL:
        return row.name.lower().startswith(_NCCL)
    return row.kind == NOTE and row.name.startswith("gloo:")


def is_call(row: Event) -> bool:
    """Whether an operator of the host hands a collective on, which it may do for long."""
    return row.kind == OP and row.name.startswith("c10d::")


def communication(step: Step, on_device: bool) -> list[Span]:
    """Where ranks exchange; on the host less what computes beside it, since that is done in any case."""
    rows = [r for r in step.rows if is_collective(r) or (not on_device and is_call(r))]
    spans = merge(((r.begin, r.end) for r in rows), step.begin, step.end)
    return subtract(spans, computing(step, on_device)) if spans else []


def computing(step: Step, on_device: bool) -> list[Span]:
    """Where anything computes: kernels that are no collectives, on a CPU the operators that call no other."""
    if on_device:
        rows = [r for r in step.device if r.kind == KERNEL and not is_collective(r)]
        return merge(((r.begin, r.end) for r in rows), step.begin, step.end)
    leaves = [n.event for n in step.ops if n.leaf and not is_call(n.event)]
    return merge(((e.begin, e.end) for e in leaves), step.begin, step.end)


@dataclass
class Collectives:
    """Collectives by name, added up over steps."""

    on_device: bool
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    exposed_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    size: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, step: Step) -> None:
        rows = [r for r in step.rows if is_collective(r)]
        if not rows:
            return
        hidden = computing(step, self.on_device)
        spans: dict[str, list[Span]] = defaultdict(list)
        for row in rows:
            spans[row.name].append((row.begin, row.end))
            if row.begin >= step.since:
                self.calls[row.name] += 1
                self.size[row.name] += max(row.size, 0)
        for name, places in spans.items():
            merged = merge(places, step.begin, step.end)
            self.us[name] += length(merged)
            self.exposed_us[name] += length(subtract(merged, hidden))
            hidden = merge([*hidden, *merged], step.begin, step.end)  # what two exchange at once is waited for once

    def rows(self, steps: int) -> tuple[CollectiveRow, ...]:
        names = sorted(self.us, key=lambda name: -self.us[name])
        return tuple(
            CollectiveRow(
                name=name,
                calls=self.calls[name] / steps,
                mib=self.size[name] / steps / (1 << 20) if self.size[name] else None,
                ms=self.us[name] / steps / 1e3,
                exposed_ms=self.exposed_us[name] / steps / 1e3,
            )
            for name in names
        )
