"""The wait for data by the marks and by the profiler's regions over the same recorded steps; what a recording costs."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from torchvision import transforms

from laptime.data.tensors import ImageData, Split
from laptime.engine.build import build
from laptime.host.processes import allowed_cores
from laptime.measure.marks import StepMarks
from laptime.optimizations.base import Loader, Parts, Recipe
from laptime.optimizations.data import ItemDataset, ItemLoader
from laptime.optimizations.process import set_malloc_thresholds
from laptime.optimizations.step import tutorial_step
from laptime.profiling.capture import Recorder, make_profiler, record_steps, undisturbed
from laptime.profiling.files import write_trace
from laptime.profiling.regions import Kind, RegionMarks
from laptime.records import Quartiles
from laptime.spec import ProfileSchedule
from laptime.trace import summarize
from laptime.workloads import find

_BATCH, _CLASSES = 32, 10
# What a recording may look at; the first is that of the profiled segment.
RECORDINGS: dict[str, dict[str, bool]] = {
    "operators and shapes": {"record_shapes": True},
    "operators": {},
    "operators, stacks": {"with_stack": True},
    "operators, memory": {"profile_memory": True},
    "all of it": {"record_shapes": True, "with_stack": True, "profile_memory": True},
}


class TimedRegions(RegionMarks):
    """Regions whose borders are timed as well, by the marks that time the counted epochs."""

    def __init__(self, timer: StepMarks) -> None:
        super().__init__()
        self.timer = timer

    def begin_step(self, kind: Kind) -> None:
        """See `RegionMarks`; what the profiler does between two steps is no part of either."""
        self.timer("between")
        super().begin_step(kind)

    def __call__(self, part: str) -> None:
        """See `RegionMarks`."""
        self.timer(part)
        super().__call__(part)

    def end_step(self) -> None:
        """See `RegionMarks`."""
        super().end_step()
        self.timer.end_step()


@dataclass(frozen=True)
class Delay:
    """Costs an item a wait or a computation before it is converted."""

    item_s: float
    busy: bool

    def __call__(self, image: object) -> object:
        """Hands the image on, later."""
        end = time.perf_counter() + self.item_s
        if self.busy:
            while time.perf_counter() < end:
                pass
        else:
            time.sleep(self.item_s)
        return image


def slowed(recipe: Recipe, delay: Delay) -> Loader:
    """The baseline's loader over items that cost more."""
    loader = ItemLoader(recipe)
    dataset = loader.loader.dataset
    assert isinstance(dataset, ItemDataset)
    dataset.transform = transforms.Compose([delay, dataset.transform])
    return loader


@dataclass(frozen=True)
class Waits:
    """Mean milliseconds a step, of the same recorded steps.

    Attributes:
        marked_ms: the wait by the host's marks.
        traced_ms: the exposed wait that the trace attributes to data loading.
        step_ms: the whole step by the marks.
    """

    marked_ms: float
    traced_ms: float
    step_ms: float
    steps: int


def compared(parts: Parts, steps: ProfileSchedule, folder: Path) -> Waits:
    """Records one cycle of steps with marks and regions at the same borders."""
    timer, recorder = recorded(parts, steps, record_shapes=True)
    assert recorder.profiler is not None, recorder.failure
    plain = write_trace(recorder.profiler, folder / "trace.json.gz")
    traced_ms = summarize(plain).attribution_ms["data_loading"]
    plain.unlink()
    times = timer.times()
    looked_at = times.ns[-steps.active :] / 1e6
    within = [i for i, part in enumerate(times.parts) if part != "between"]
    return Waits(
        marked_ms=float(looked_at[:, times.parts.index("data")].mean()),
        traced_ms=traced_ms,
        step_ms=float(looked_at[:, within].sum(axis=1).mean()),
        steps=steps.active,
    )


def recorded(parts: Parts, steps: ProfileSchedule, **what: bool) -> tuple[StepMarks, Recorder]:
    """Trains a schedule's steps under the profiler, timed by the marks as well."""
    return _through(parts, steps, lambda: make_profiler(parts.device, steps, **what))


def _through(
    parts: Parts, steps: ProfileSchedule, make: Callable[[], torch.profiler.profile] | None
) -> tuple[StepMarks, Recorder]:
    timer, recorder = StepMarks(), Recorder(make)
    with undisturbed(parts):
        parts.mark = TimedRegions(timer)
        timer.start(steps.steps + 4)
        record_steps(parts, 0, steps, recorder)
        timer.stop()
    return timer, recorder


def make_parts(delay: Delay | None, workers: int, images: int) -> Parts:
    """CIFAR's baseline on noise, with items that cost more where a delay is given."""
    torch.manual_seed(0)
    noise: Tensor = torch.randint(0, 256, (images, 32, 32, 3), dtype=torch.uint8)
    split = Split(noise, torch.arange(images) % _CLASSES)
    workload = find("cifar")
    recipe = Recipe(
        workload=workload,
        model=workload.make_model(_CLASSES, "none"),
        data=ImageData(split, split, tuple("abcdefghij"), (0.5, 0.5, 0.5), (0.3, 0.3, 0.3)),
        device=torch.device("cpu"),
        image_size=(32, 32),
        batch_size=_BATCH,
        learning_rate=1e-3,
        epochs=1,
        seed=0,
        make_loader=partial(slowed, delay=delay) if delay else ItemLoader,
        forward=workload.forward,
        step=tutorial_step,
    )
    recipe = replace(recipe, loading=replace(recipe.loading, workers=workers))
    return build(recipe, StepMarks())


def waits(rounds: int, steps: int, item_ms: float) -> None:
    """Prints marks beside trace for loaders that sleep and compute, without and with workers."""
    print("| loader | workers | steps | step, ms | wait by the marks, ms | by the trace, ms | trace over marks |")  # noqa: T201
    print("| --- | --- | --- | --- | --- | --- | --- |")  # noqa: T201
    for busy in (False, True):
        for workers in (0, 2):
            parts = make_parts(Delay(item_ms / 1e3, busy), workers, (steps + 8) * _BATCH)
            with tempfile.TemporaryDirectory() as folder:
                found = [compared(parts, ProfileSchedule(2, 2, steps, 1), Path(folder)) for _ in range(rounds)]
            ratios = [f.traced_ms / f.marked_ms - 1 for f in found]
            marked, traced, step = (median(getattr(f, n) for f in found) for n in ("marked_ms", "traced_ms", "step_ms"))
            print(  # noqa: T201
                f"| {'busy' if busy else 'sleeps'} | {workers} | {rounds} x {steps} | {step:.1f} | {marked:.3f} | "
                f"{traced:.3f} | {min(ratios):+.1%} to {max(ratios):+.1%} |",
                flush=True,
            )


def costs(rounds: int, steps: int) -> None:
    """Prints what a recording of each kind makes of a step, in turn with steps that nobody records."""
    parts = make_parts(None, 0, (steps + 8) * _BATCH)
    schedule = ProfileSchedule(1, 2, steps, 1)
    found: dict[str, list[list[float]]] = {name: [] for name in ("not recorded", *RECORDINGS)}
    for _ in range(rounds):
        for name, seen in found.items():
            make = (
                None if name == "not recorded" else partial(make_profiler, parts.device, schedule, **RECORDINGS[name])
            )
            seen.append(_steps_ms(_through(parts, schedule, make)[0], steps))
    plain = found["not recorded"]
    print("| recording | n | step, ms (quartiles) | over steps that are not recorded, by round |")  # noqa: T201
    print("| --- | --- | --- | --- |")  # noqa: T201
    for name, seen in found.items():
        of = Quartiles.of([ms for times in seen for ms in times])
        ratios = ", ".join(f"{median(a) / median(b):.2f}" for a, b in zip(seen, plain, strict=True))
        print(f"| {name} | {rounds * steps} | {of.median:.1f} ({of.low:.1f} to {of.high:.1f}) | {ratios} |", flush=True)  # noqa: T201


def _steps_ms(timer: StepMarks, steps: int) -> Sequence[float]:
    times = timer.times()
    within = [i for i, part in enumerate(times.parts) if part != "between"]
    return [float(ms) for ms in times.ns[-steps:][:, within].sum(axis=1) / 1e6]


def main() -> None:
    """Prints one of the two tables, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("waits", "costs"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--item-ms", type=float, default=0.5)
    parser.add_argument("--keep-pages", action="store_true", help="glibc keeps freed memory, as the rung keep-pages")
    asked = parser.parse_args()
    if asked.keep_pages:
        set_malloc_thresholds(1 << 30)
    torch.set_num_threads(allowed_cores())
    sys.stdout.write(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n\n")
    if asked.what == "waits":
        waits(asked.rounds, asked.steps, asked.item_ms)
    else:
        costs(asked.rounds, asked.steps)


if __name__ == "__main__":
    main()
