"""A trace in numbers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laptime.errors import DataError, shorten
from laptime.host.memory import uncollected
from laptime.records import Quartiles, TraceSummary
from laptime.trace.attribution import attribute
from laptime.trace.collectives import Collectives
from laptime.trace.compiling import Compiler
from laptime.trace.device import Device
from laptime.trace.events import DEVICE, NOTE, RUNTIME, Event, Reducer, is_step
from laptime.trace.gradients import Gradients
from laptime.trace.intervals import Span, length
from laptime.trace.operators import Operators
from laptime.trace.reader import Told, TraceFile, untold
from laptime.trace.refusals import no_steps, nothing_of_torch, only_an_end
from laptime.trace.slices import Slices
from laptime.trace.steps import TOUCHING_US, Step, device_window, ends_idle, odd_one, read_steps
from laptime.trace.store import IN_MEMORY, Store

GC = "Python GC"
# Operators that no CPU has; a recurrent net asks on each device whether cuDNN would do.
_ON_GPU = re.compile(r"cudnn(?!_is_acceptable)|miopen|_(flash|efficient|cudnn)_attention_(forward|backward)$")
ADDING_UP = "adding up steps"


def summarize(path: Path, in_memory: int = IN_MEMORY, told: Told = untold) -> TraceSummary:
    """Reads a trace that torch's profiler exported, `.json` or `.json.gz`, of any size.

    Memory holds the rows of one step and what grows with distinct operators; see `Store` for the rest.

    Args:
        path: the file.
        in_memory: rows that may be held in memory before they move to a temporary file.
        told: hears how far it is: first of the file, then of its steps.

    Raises:
        DataError: the file can't be read, is no trace of torch's, is cut off, or marks no steps.
    """
    file, reducer = TraceFile(path, told), Reducer()
    with Store(in_memory) as store:
        with uncollected():  # events and rows hold no cycles, and it walks all rows again and again
            marks, kinds, streams, compiler = _fill(store, file, reducer)
        if not kinds:
            raise nothing_of_torch(file)
        if not marks:
            raise no_steps(file, kinds)
        marks, devices = _one_after_another(marks, path), _one_device(store, streams)
        if ends_idle(store, marks[-1]):
            marks.pop()
        if not marks:
            raise only_an_end(file)
        marks, compiled = compiler.sift(marks)
        odd = odd_one(store, marks)
        marks = [mark for mark in marks if mark is not odd]
        on_device = bool(DEVICE & kinds.keys())
        totals = Totals(on_device, device_window(store, marks) if on_device else None)
        for done, step in enumerate(read_steps(store, marks, totals.until), start=1):
            totals.add(step)
            told(ADDING_UP, min(1.0, done / len(marks)))
    found = _summary(path, file.meta, totals, _missing(reducer, kinds, totals))
    if "strides" in reducer.holds:
        mixed_ms = totals.operators.mixed_us(totals.on_device) / found.steps / 1e3
        found = found.model_copy(update={"mixed_ms": mixed_ms})
    left_out = odd.dur / 1e3 if odd else None
    return found.model_copy(update={"compiler": compiled, "left_out_ms": left_out, "devices": devices})


def _one_after_another(marks: list[Event], path: Path) -> list[Event]:
    """The marks in order, less those that lie around or over others: a second profiler's, or an outer loop's.

    Raises:
        DataError: they are of several processes.
    """
    processes = {mark.lane.partition("/")[0] for mark in marks}
    if len(processes) > 1:
        raise DataError(
            f"the trace {shorten(str(path))} holds the steps of {len(processes)} processes: give the file of one, such "
            "as one rank's."
        )
    kept: list[Event] = []
    for mark in sorted(marks, key=lambda m: (m.end, -m.begin)):
        if not kept or mark.begin >= kept[-1].end - TOUCHING_US:
            kept.append(mark)
    return kept


def _one_device(store: Store, streams: Counter[str]) -> int:
    """Keeps the rows of the device with most kernels: the times of several at once are no parts of one step.

    Returns:
        how many devices there were; a stream's name begins with its device's.
    """
    kernels: Counter[str] = Counter()
    for lane, count in streams.items():
        kernels[lane.partition("/")[0]] += count
    if len(kernels) > 1:
        main = max(kernels, key=lambda device: (kernels[device], device))
        store.drop([lane for lane in streams if lane.partition("/")[0] != main])
    return len(kernels)


def _fill(store: Store, file: TraceFile, reducer: Reducer) -> tuple[list[Event], Counter[int], Counter[str], Compiler]:
    """Moves the file's rows into the store.

    Returns:
        the marks of steps apart, how many rows of each kind and of each stream of a device, and torch.compile's.
    """
    compiler = Compiler()
    marks: list[Event] = []
    kinds: Counter[int] = Counter()
    streams: Counter[str] = Counter()
    for raw in file.read():
        row = reducer.row(raw)
        if row is None:
            continue
        kinds[row.kind] += 1
        if row.kind in DEVICE:
            streams[row.lane] += 1
        if is_step(row):
            marks.append(row)
        else:
            compiler.see(row)
            store.add(row)
    store.close()
    return marks, kinds, streams, compiler


@dataclass
class Totals:
    """Sums over steps, in microseconds.

    Attributes:
        window: where the device does what the steps launched, where that is another time than theirs.
        counted_us: the time that is shared out: of the steps, or of that window.
    """

    on_device: bool
    window: Span | None = None
    counted_us: float = 0.0
    steps_us: list[float] = field(default_factory=list)
    waits_us: list[float] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    regions: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    operators: Operators = field(default_factory=Operators)
    gradients: Gradients = field(default_factory=Gradients)
    slices: Slices = field(default_factory=Slices)
    optimizer_us: float = 0.0
    optimizer_ops: int = 0
    gc_us: float = 0.0
    gc_seen: bool = False

    def __post_init__(self) -> None:
        self.device = Device(self.operators) if self.on_device else None
        self.collectives = Collectives(self.on_device)

    @property
    def until(self) -> float:
        """Until when the device works for the steps, where it is behind them."""
        return self.window[1] if self.window else float("-inf")

    def add(self, step: Step) -> None:
        if step.marked:
            self._host(step)
        seen = step.within(self.window)
        self.counted_us += seen.end - seen.begin
        shares = attribute(seen, self.on_device)
        self.waits_us.append(shares["data_loading"])
        for category, share in shares.items():
            self.shares[category] += share
        self.collectives.add(seen)
        if self.device is not None:
            self.device.add(seen)

    def _host(self, step: Step) -> None:
        self.steps_us.append(step.end - step.begin)
        for name, spans in step.regions.items():
            self.regions[name] += length(spans)
        self.operators.add(step)
        self.gradients.add(step)
        self.slices.add(step)
        if self.device is not None:
            self.device.launches.add(step)
            self.device.asked.add(step)
        self._optimizer(step)
        self.gc_us += length(step.notes(GC))
        self.gc_seen |= any(row.kind == NOTE and row.name == GC for row in step.rows)

    def clocked(self) -> tuple[list[float], list[float]]:
        """Steps and what they take beside their wait for data: of a device by its own clock, none where it has none."""
        if self.device is None:
            return self.steps_us, [us - wait for us, wait in zip(self.steps_us, self.waits_us, strict=True)]
        return [end - begin for begin, end in self.device.steps()], self.device.computing_us()

    def _optimizer(self, step: Step) -> None:
        spans = step.optimizer()
        self.optimizer_us += length(spans)
        roots = (n.event.begin for n in step.ops if n.op is None)
        self.optimizer_ops += sum(any(low <= begin < high for low, high in spans) for begin in roots)

    def optimizer(self) -> tuple[float, int]:
        """Microseconds and calls of the optimizer: on a device of its kernels, 0 of none; else of the host."""
        if self.device is not None:
            return self.device.optimizer_us, self.device.optimizer_kernels
        return self.optimizer_us, self.optimizer_ops


def _summary(path: Path, meta: dict[str, Any], totals: Totals, missing: tuple[str, ...]) -> TraceSummary:
    steps, (clocked, computing) = len(totals.steps_us), totals.clocked()
    per_step = 1.0 / steps / 1e3
    device, operators = totals.device, totals.operators
    optimizer_us, optimizer_calls = totals.optimizer()
    elementwise_us = operators.elementwise_device_us if device is not None else operators.elementwise_us
    ranks = _fields(meta.get("distributedInfo"))
    return TraceSummary(
        source=path.name,
        device="cuda" if device is not None else "cpu",
        device_name=str(_gpu(meta).get("name", "")),
        compute_major=_whole(_gpu(meta).get("computeMajor")),
        precision=operators.precision(totals.on_device),
        torch=str(meta.get("torch_version", meta.get("pytorch_version", ""))),
        steps=steps,
        step_ms=Quartiles.of([us / 1e3 for us in totals.steps_us]),
        device_step_ms=_quartiles(clocked) if device is not None else None,
        compute_ms=_quartiles(computing),
        wait_ms=_quartiles([us - beside for us, beside in zip(clocked, computing, strict=True)]),
        step_mean_ms=totals.counted_us * per_step,
        attribution_ms={name: us * per_step for name, us in totals.shares.items()},
        regions_ms={name: us * per_step for name, us in totals.regions.items()},
        operators=operators.rows(steps),
        kernels=device.kernels(steps) if device is not None else None,
        copies=device.copy_rows(steps) if device is not None else (),
        allocations=device.asked.row(steps) if device is not None else None,
        syncs=device.syncs.rows(steps) if device is not None else (),
        collectives=totals.collectives.rows(steps),
        elementwise_calls=operators.elementwise_calls / steps if operators.groups else None,
        elementwise_ms=elementwise_us * per_step if operators.groups else None,
        optimizer_ms=optimizer_us * per_step if optimizer_us else None,
        optimizer_calls=optimizer_calls / steps if optimizer_us else None,
        gc_ms=totals.gc_us * per_step if totals.gc_seen else None,
        unused_graph=totals.gradients.found(),
        slices=totals.slices.rows(steps),
        rank=_whole(ranks.get("rank")),
        world=_whole(ranks.get("world_size")),
        missing=missing,
    )


def _missing(reducer: Reducer, kinds: Counter[int], totals: Totals) -> tuple[str, ...]:
    """What the trace does not hold; `device` where a GPU worked and none of its kernels were recorded."""
    launched = bool(kinds[RUNTIME]) or any(_ON_GPU.search(key[0]) for key, _ in totals.operators.groups)
    absent = {
        "shapes": "shapes" not in reducer.holds,
        "stacks": "stacks" not in reducer.holds,
        "memory": "memory" not in reducer.holds,
        "regions": not totals.regions,
        "data": "data" not in totals.regions,
        "device": launched and not totals.on_device,
    }
    return tuple(name for name, is_absent in absent.items() if is_absent)


def _quartiles(times_us: list[float]) -> Quartiles | None:
    return Quartiles.of([us / 1e3 for us in times_us]) if times_us else None


def _gpu(meta: dict[str, Any]) -> dict[str, Any]:
    """What the trace says of the first GPU."""
    devices = meta.get("deviceProperties")
    return _fields(devices[0] if isinstance(devices, list) and devices else None)


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
