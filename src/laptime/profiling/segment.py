"""From a built run to the files of its profile: times, stacks and memory, inference."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch.profiler import profile, record_function

from laptime.engine.setup import samples_at_once
from laptime.measure.inference import inference_sizes
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.graph import recording_of
from laptime.optimizations.passes import divide
from laptime.optimizations.samples import first, ungraded
from laptime.profiling.capture import (
    Recorder,
    activities_of,
    fitted,
    in_one_line,
    make_profiler,
    record_steps,
    slimmed,
    undisturbed,
)
from laptime.profiling.files import (
    inference_tables,
    write_memory_tables,
    write_time_tables,
    write_trace,
)
from laptime.profiling.memory import categories, traced_peak_mib
from laptime.profiling.peers import of_scratch, own_ms, summarized
from laptime.records import ProfileRecord, TraceSummary, write_json, write_text
from laptime.spec import ProfileSchedule
from laptime.values.trees import tensors
from laptime.workloads.base import Batch

# What the steps may take of a run, two to learn the order of the marks aside; longer ones are fewer. Reading what was
# recorded takes torch several times as long (18 s for five steps of EfficientNet-B5).
_TIMES_S, _CLOSE_S = 3.0, 1.5
# Stacks and memory cost time in each operation, so they are taken apart from the times. The table of memory is of steps
# without stacks: torch adds up what was taken within each frame (13 s for two steps of EfficientNet-B5).
_CLOSE_STEPS = ProfileSchedule(0, 1, 2, 1)
_PASSES = 3
# Above this ratio of recorded to counted steps a reader is told.
_SEEN = 1.10
_NO_KERNELS = (
    "no kernel of the GPU was recorded, so device times are unknown: another profiler may hold CUPTI, or the driver "
    "keeps it from this user"
)


@dataclass(frozen=True)
class Asked:
    """What to profile.

    Attributes:
        schedule: steps of the recording of times.
        epoch: which one is trained again.
        counted_ms: median of the counted steps like those of this epoch; None where none was kept.
        folder: where the files go.
    """

    schedule: ProfileSchedule
    epoch: int
    counted_ms: float | None
    folder: Path


@dataclass
class Segment:
    """A profile on its way; what fails becomes a note, and the rest is still written."""

    parts: Parts
    recipe: Recipe
    asked: Asked
    notes: list[str] = field(default_factory=list)
    traces: dict[str, Path] = field(default_factory=dict)
    memory_mib: dict[str, float] = field(default_factory=dict)
    held: int | None = None
    own_ms: float | None = None
    ranks_own_ms: tuple[float, ...] | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether there is device time."""
        return self.parts.device.type == "cuda"

    def run(self) -> ProfileRecord:
        """Records and writes; nothing that was timed or saved changes, though the model trains on.  # all ranks"""
        world, asked = self.recipe.world, self.asked
        step_s = asked.counted_ms / 1e3 if asked.counted_ms else None
        count = sum(1 for _ in self.parts.model.parameters())
        plan = (slimmed(fitted(asked.schedule, step_s, _TIMES_S), count), fitted(_CLOSE_STEPS, step_s, _CLOSE_S))
        (steps, note), (close_steps, _) = world.agreed(plan)
        self.notes += [note] if note else []
        if world.first:
            self._guarded("the profile has no folder", lambda: asked.folder.mkdir(parents=True, exist_ok=True))
        with undisturbed(self.parts):
            times = self._recorded(steps, world.size > 1, record_shapes=True)
            self._written(times, self._write_times if world.first else self._take_own)
            self._exchange_own()
            self._guarded("the GPU's peak was not reset", self._reset_peak)
            memory = self._recorded(close_steps, profile_memory=True)
            self._written(memory, lambda m: write_memory_tables(m, self.asked.folder, self.on_gpu))
            stacks = self._recorded(close_steps, record_shapes=True, with_stack=True, profile_memory=True)
            self._written(stacks, self._write_stacks)
            if world.first:
                self._guarded("inference was not profiled", self._inference)
        if world.first:
            self._guarded("breakdown.json was not written", self._breakdown)
            for plain in self.traces.values():
                plain.unlink(missing_ok=True)
        return self._record(steps, times.steps_ms)

    def _recorded(self, steps: ProfileSchedule, everywhere: bool = False, **what: Any) -> Recorder:
        """Takes the steps, on the first rank, or on all of them, under a profiler."""
        records = everywhere or self.recipe.world.first
        recorder = Recorder((lambda: make_profiler(self.parts.device, steps, **what)) if records else None)
        try:
            record_steps(self.parts, self.asked.epoch, steps, recorder)
        except Exception as error:
            if self.recipe.world.size > 1:
                raise  # the others wait for this rank: the run has failed
            recorder.failure, recorder.profiler = f"a profiled step failed: {in_one_line(error)}", None
        return recorder

    def _written(self, recorder: Recorder, write: Callable[[profile], None]) -> None:
        recorded = recorder.profiler
        if recorder.failure:
            self.notes.append(recorder.failure)
        if recorded is not None:
            self._guarded("a part of the profile was not written", partial(write, recorded))
        # Of thousands of layers a recording holds gigabytes, in events that know each other and wait for a collector.
        del recorded
        recorder.profiler = None
        gc.collect()

    def _guarded(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # disks that are full, traces that torch can't read back: never the run's end
            self.notes.append(f"{what}: {in_one_line(error)}")

    def _write_times(self, recorded: profile) -> None:
        self.traces["times"] = write_trace(recorded, self.asked.folder / "trace.json.gz")
        write_time_tables(recorded, self.asked.folder)

    def _take_own(self, recorded: profile) -> None:
        """On a rank that keeps no trace: what its own work took."""
        self.own_ms = of_scratch(recorded)

    def _exchange_own(self) -> None:
        """Notes what each rank's own work takes; nothing where one of them does not know.  # all ranks"""
        world = self.recipe.world
        if world.size == 1:
            return
        trace = self.traces.get("times")
        if trace is not None:
            self._guarded("the first rank's own time is not known", lambda: self._read_own(trace))
        each = world.collected(self.own_ms)
        known = tuple(ms for ms in each if ms is not None)
        self.ranks_own_ms = known if len(known) == len(each) else None

    def _read_own(self, trace: Path) -> None:
        self.own_ms = own_ms(summarized(trace))

    def _write_stacks(self, recorded: profile) -> None:
        self.traces["stacks"] = write_trace(recorded, self.asked.folder / "trace_stacks.json.gz")
        peak = self._gpu_peak_mib() if self.on_gpu else traced_peak_mib(self.traces["stacks"])
        batch = next(iter(self.parts.loader.epoch(self.asked.epoch)))
        self.memory_mib = categories(self.parts, peak, tuple(tensors(batch.content)))

    def _reset_peak(self) -> None:
        """Begins to look for a GPU's peak, and notes the bytes that are held between steps."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.parts.device)
            self.held = torch.cuda.memory_allocated(self.parts.device)

    def _gpu_peak_mib(self) -> float | None:
        """None where a step is replayed: a graph's memory is taken when it is recorded, and kept."""
        if self.held is None or recording_of(self.parts.step) is not None:
            return None
        return (torch.cuda.max_memory_allocated(self.parts.device) - self.held) / 2**20

    def _inference(self) -> None:
        """Forward passes alone by batch size, in evaluation mode and the run's precision, batches on the device.

        The trace is of the largest.
        """
        model, tables, recorded = self.parts.evaluated, [], None
        model.eval()
        try:
            for batch in self._for_inference():
                recorded = self._passes(batch)
                tables += inference_tables(recorded, f"Inference, {_PASSES} passes of {len(batch)} samples")
        finally:
            model.train()
        write_text(self.asked.folder / "inference.txt", "\n".join(tables))
        if recorded is not None:
            self.traces["inference"] = write_trace(recorded, self.asked.folder / "trace_inference.json.gz")

    def _for_inference(self) -> Iterator[Batch]:
        """Batches of the sizes that are timed; where the test samples are too few, the training's own."""
        sizes = inference_sizes(self.recipe)
        for size in sizes:
            yield first(self.recipe, self.recipe.data.test, size, self.parts.device)
        if (most := samples_at_once(self.recipe)) not in sizes:
            yield divide(next(iter(self.parts.loader.epoch(self.asked.epoch))), most)[0]

    def _passes(self, batch: Batch) -> profile:
        parts, model = self.parts, self.parts.evaluated
        recorded = profile(activities=activities_of(parts.device), record_shapes=True)
        with ungraded(self.recipe.data):
            parts.forward(model, batch)
            with recorded:
                for _ in range(_PASSES):
                    with record_function("inference"):
                        parts.forward(model, batch)
        return recorded

    def _breakdown(self) -> None:
        trace, stacks = (self.traces.get(name) for name in ("times", "stacks"))
        if trace is None:
            return
        found = summarized(trace)
        if stacks is not None:
            found = with_sources(found, summarized(stacks))
        missing, note = absent(found, self.on_gpu, bool(self.memory_mib))
        self.notes += [note] if note else []
        update = {
            "source": "trace.json.gz",
            "missing": missing,
            "torch": torch.__version__,
            "device_name": torch.cuda.get_device_name(self.parts.device) if self.on_gpu else "",
        }
        write_json(self.asked.folder / "breakdown.json", found.model_copy(update=update))

    def _record(self, steps: ProfileSchedule, steps_ms: list[float]) -> ProfileRecord:
        # On a GPU the host only waits before the first step and in the last: how long one took says the mean alone.
        middle = mean if self.on_gpu else median
        step_ms = middle(steps_ms) if steps_ms else None
        ratio = step_ms / self.asked.counted_ms if step_ms and self.asked.counted_ms else None
        if ratio is not None and ratio > _SEEN:
            self.notes.append(
                f"recorded steps took {ratio:.2f} times the counted ones: take shares from the profile, times from the "
                "counted epochs"
            )
        return ProfileRecord(
            schedule=str(steps),
            steps=len(steps_ms),
            step_ms=step_ms,
            ratio=ratio,
            folder=self.asked.folder.name,
            memory_mib=self.memory_mib,
            ranks_own_ms=self.ranks_own_ms,
            notes=tuple(self.notes),
        )


def absent(found: TraceSummary, on_gpu: bool, memory: bool) -> tuple[tuple[str, ...], str]:
    """What a profile lacks (`device` where no kernel was recorded), and a note where it should have it.

    Args:
        found: the recording of times.
        on_gpu: whether the run was on a GPU, where kernels belong to it.
        memory: whether memory is known from the other recording.
    """
    missing = set(found.missing) - {"device"} - ({"memory"} if memory else set())
    if found.kernels is not None:
        return tuple(sorted(missing)), ""
    return tuple(sorted(missing | {"device"})), _NO_KERNELS if on_gpu else ""


def with_sources(summary: TraceSummary, stacks: TraceSummary) -> TraceSummary:
    """Takes the source lines of operators from a recording with stacks, which the one of times has none of."""
    lines = {(row.name, row.shapes, row.window): row.source for row in stacks.operators if row.source}
    rows = tuple(
        row if row.source else row.model_copy(update={"source": lines.get((row.name, row.shapes, row.window), "")})
        for row in summary.operators
    )
    missing = tuple(m for m in summary.missing if m != "stacks" or not lines)
    unused = summary.unused_graph
    if unused is not None and stacks.unused_graph is not None and not unused.sources:
        unused = unused.model_copy(update={"sources": stacks.unused_graph.sources})
    places = {(row.name, row.shapes, row.within): row.source for row in stacks.slices}
    slices = tuple(
        row.model_copy(update={"source": row.source or places.get((row.name, row.shapes, row.within), "")})
        for row in summary.slices
    )
    update = {"operators": rows, "missing": missing, "unused_graph": unused, "slices": slices}
    return summary.model_copy(update=update)
