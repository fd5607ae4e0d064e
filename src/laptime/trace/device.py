"""The device's side of a trace: kernels, idle time, copies, and the optimizer's share."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, cast

from laptime.records import Allocations, CopyRow, KernelStats
from laptime.trace.attribution import waiting_for_data
from laptime.trace.collectives import is_collective
from laptime.trace.events import COPY, KERNEL, WAY, Event
from laptime.trace.intervals import Span, gaps, length, merge, subtract
from laptime.trace.launches import Launches, root
from laptime.trace.nest import Node
from laptime.trace.operators import Operators
from laptime.trace.steps import Step
from laptime.trace.syncs import Syncs

SHORT_US = 10.0
_GRAPH = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
# cuDNN's and TensorRT's names for kernels that only bring memory into another order.
_LAYOUT = re.compile(r"nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|transposekernel|tensortransform", re.IGNORECASE)

# Calls for memory: cudaMalloc and cudaFree, or the driver's where torch's segments may grow.
_TAKES = frozenset(["cudaMalloc", "hipMalloc", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve"])
_GIVES = frozenset(["cudaFree", "hipFree", "cuMemRelease", "cuMemUnmap", "cuMemAddressFree"])

CopyKey = tuple[str, bool | None]


@dataclass
class Copies:
    """Copies of one kind, added up."""

    calls: int = 0
    bytes: int = 0
    us: float = 0.0
    fresh: int = 0
    sources: Counter[str] = field(default_factory=Counter)


@dataclass
class Asked:
    """Calls to the driver for memory, added up."""

    steps: int = 0
    takes: int = 0
    gives: int = 0
    us: float = 0.0

    def add(self, step: Step) -> None:
        calls = [n.event for n in step.runtime if n.event.name in _TAKES or n.event.name in _GIVES]
        self.steps += bool(calls)
        gives = sum(call.name in _GIVES for call in calls)
        self.gives += gives
        self.takes += len(calls) - gives
        self.us += sum(call.dur for call in calls)

    def row(self, steps: int) -> Allocations:
        calls = (self.takes + self.gives) / steps
        return Allocations(steps=self.steps, calls=calls, frees=self.gives / steps, ms=self.us / steps / 1e3)


@dataclass
class Device:
    """What the device did, added up over steps.

    Attributes:
        kernel_us: of each kernel, four bytes each: the one thing here that grows with the trace's kernels.
        graphed: kernels that a recorded graph launched.
        begins: where the first kernel of each step begins, by the number of the step that launched it.
        waited: where the device stood idle while the host fetched, in order.
        updates: from the first kernel to the last that an optimizer's step launched, by number of the step.
    """

    operators: Operators
    launches: Launches = field(default_factory=Launches)
    syncs: Syncs = field(default_factory=Syncs)
    asked: Asked = field(default_factory=Asked)
    kernel_us: array[float] = field(default_factory=lambda: array("f"))
    busy_us: float = 0.0
    idle_us: float = 0.0
    unexplained_us: float = 0.0
    layout_us: float = 0.0
    graphed: int = 0
    begins: dict[int, float] = field(default_factory=dict)
    waited: list[Span] = field(default_factory=list)
    copies: dict[CopyKey, Copies] = field(default_factory=lambda: defaultdict(Copies))
    updates: dict[int, Span] = field(default_factory=dict)
    optimizer_kernels: int = 0

    def add(self, step: Step) -> None:
        rows = step.device
        busy = merge(((r.begin, r.end) for r in rows), step.begin, step.end)
        idle = gaps(busy, step.begin, step.end)
        self.busy_us += length(busy)
        self.idle_us += length(idle)
        fetching = waiting_for_data(step)
        self.waited += subtract(fetching, busy)
        explained = merge([*self.syncs.add(step, busy), *fetching])
        self.unexplained_us += length(subtract(idle, explained))
        for row in rows:
            if row.begin < step.since:
                continue
            if row.kind == KERNEL:
                self._kernel(row)
            elif row.kind == COPY:
                self._copy(row)

    def _kernel(self, row: Event) -> None:
        call = self.launches.call(row)
        if call is not None:
            self._launched(row, call)
        if is_collective(row):
            return
        self.kernel_us.append(row.dur)
        self.graphed += call is not None and call.event.name.startswith(_GRAPH)
        if _LAYOUT.search(row.name):
            self.layout_us += row.dur
        op = self.launches.operator(row)
        if op is not None:
            self.operators.add_kernel(op, op.region, row.dur)

    def _launched(self, row: Event, call: Node) -> None:
        """Counts a kernel for the step that launched it, and for that step's optimizer if it did."""
        self.begins.setdefault(call.step, row.begin)
        if call.update:
            begin, end = self.updates.get(call.step, (row.begin, row.end))
            self.updates[call.step] = min(begin, row.begin), max(end, row.end)
            self.optimizer_kernels += 1

    def _copy(self, row: Event) -> None:
        kind = WAY.match(row.name)
        if kind is None:
            return
        pageable = True if "Pageable" in row.name else False if "Pinned" in row.name else None
        copies = self.copies[kind[1], pageable]
        copies.calls += 1
        copies.bytes += max(0, row.size)
        copies.us += row.dur
        op = self.launches.operator(row)
        copies.fresh += kind[1] == "HtoD" and op is not None and root(op).fresh
        source = self.launches.source(row)
        if source:
            copies.sources[source] += 1

    @property
    def optimizer_us(self) -> float:
        """From the first kernel of each optimizer's step to its last, idle time between them included."""
        return length(self.updates.values())

    def steps(self) -> list[Span]:
        """Steps on the device's own clock, from the first kernel of one to that of the next."""
        return [(self.begins[n], self.begins[n + 1]) for n in sorted(self.begins) if n + 1 in self.begins]

    def computing_us(self) -> list[float]:
        """What each of those steps takes beside its wait for data."""
        steps, at, times = self.steps(), 0, []
        left = subtract(steps, merge(self.waited))
        for _, end in steps:
            first = at
            while at < len(left) and left[at][0] < end:
                at += 1
            times.append(length(left[first:at]))
        return times

    def kernels(self, steps: int) -> KernelStats:
        count = len(self.kernel_us)
        return KernelStats(
            calls=count / steps,
            median_us=median(self.kernel_us) if count else None,
            graphed=self.graphed / count if count else None,
            short=sum(us < SHORT_US for us in self.kernel_us) / count if count else None,
            busy_ms=self.busy_us / steps / 1e3,
            idle_ms=self.idle_us / steps / 1e3,
            unexplained_idle_ms=self.unexplained_us / steps / 1e3,
            layout_ms=self.layout_us / steps / 1e3,
        )

    def copy_rows(self, steps: int) -> tuple[CopyRow, ...]:
        found = sorted(self.copies.items(), key=lambda item: -item[1].us)
        return tuple(
            CopyRow(
                kind=cast("Literal['HtoD', 'DtoH', 'DtoD']", kind),
                pageable=pageable,
                calls=copies.calls / steps,
                mib=copies.bytes / steps / (1 << 20),
                ms=copies.us / steps / 1e3,
                fresh=copies.fresh / steps,
                source=min(copies.sources, key=lambda line: (-copies.sources[line], line), default=""),
            )
            for (kind, pageable), copies in found
        )
