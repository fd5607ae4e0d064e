"""How fast a forward pass alone is, by batch size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn

from laptime.data.boxes.tensors import BoxData
from laptime.engine.setup import samples_at_once
from laptime.measure.passes import wait_for
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.samples import first, ungraded
from laptime.records import InferenceRecord, Quartiles
from laptime.workloads.base import Batch

_SIZES = (1, 32)
_PASSES = 50
_BUDGET_S = 1.5


def measure_inference(
    p: Parts, recipe: Recipe, clock: Callable[[], float] = perf_counter, budget_s: float = _BUDGET_S
) -> tuple[InferenceRecord, ...]:
    """Times forward passes of what evaluation uses, in the run's precision, without gradients; waits for the device.

    Batch sizes are 1, 32 and what goes through a rank's net at once in training (of a detector that alone), as far as
    there are test samples for them; inputs are on the device. The forward pass is the workload's own, with the loss
    and the hits. All state is left as it was, random numbers too.

    Args:
        p: the run's parts.
        recipe: what they were built from.
        clock: seconds.
        budget_s: for all sizes together. Each has a pass that doesn't count and at least one that does, so that a large
            batch on a slow CPU may take longer.
    """
    test, sizes = recipe.data.test, inference_sizes(recipe)
    found = []
    # A user's net may draw random numbers in evaluation too; what follows must not depend on how many passes fitted.
    seeded = torch.random.fork_rng(devices=[p.device] if p.device.type == "cuda" else [])
    with _evaluating(p.evaluated), seeded, ungraded(recipe.data):
        for size in sizes:
            batch = first(recipe, test, size, p.device)
            times = _passes(_Pass(p, batch, clock), budget_s / len(sizes))
            spread = Quartiles.of([1000 * s for s in times])
            found.append(InferenceRecord(batch_size=size, pass_ms=spread, samples_per_s=1000 * size / spread.median))
    return tuple(found)


def inference_sizes(recipe: Recipe) -> list[int]:
    """The batch sizes of a closer look at inference, ascending; none where no batch of test samples is as large."""
    own = samples_at_once(recipe)
    # Whole photographs of 32 at once would take half a minute on two cores.
    usual = {own} if isinstance(recipe.data, BoxData) else {*_SIZES, own}
    return [size for size in sorted(usual) if size <= len(recipe.data.test)]


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@dataclass(frozen=True)
class _Pass:
    """One forward pass, timed to its end on the device."""

    parts: Parts
    batch: Batch
    clock: Callable[[], float]

    def __call__(self) -> float:
        wait_for(self.parts.device)
        begin = self.clock()
        self.parts.forward(self.parts.evaluated, self.batch)
        wait_for(self.parts.device)
        return self.clock() - begin


def _passes(timed: Callable[[], float], budget_s: float) -> list[float]:
    """Seconds of the passes that fit into the budget after a first one."""
    left = budget_s - timed()
    times: list[float] = []
    while len(times) < _PASSES and (left > 0 or not times):
        times.append(timed())
        left -= times[-1]
    return times
