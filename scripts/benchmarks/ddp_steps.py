"""What DDP costs a world of one: one step of each side in turn, all in one process, so that the same moment hits all.

Whole processes one after the other scatter by 10 to 20 % on a shared machine. Here every side trains the same net on
the same data from the same seed, by laptime's own recipe, loader and step; a step runs from the fetch of its batch to
its end. A side's figure is the median over all turns of its step over that without DDP in the same turn. Turns that
follow each other are alike, so its interval comes from the medians of blocks of them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.distributed as dist

from laptime.catalogue import parse_optimization
from laptime.compare.statistics import Estimate, mean_ratio
from laptime.engine.build import build, make_recipe
from laptime.engine.loop import train_epoch
from laptime.engine.reset import reset, snapshot
from laptime.optimizations.base import AnyData, Parts, Recipe, unmarked
from laptime.spec import RunSpec
from laptime.workloads.base import Counts
from laptime.world import ALONE, World

WITHOUT, USER, PLAIN = "no ddp", "ddp:ranks=1, as a user gets it", "ddp, wrapped in a group of one"
# Name, what is put on the list, whether in a process group. Without torch's launcher, which one rank never takes by
# itself, there is no group and laptime wraps nothing; torch's own wrapper is looked at beside it.
SIDES: tuple[tuple[str, str, bool], ...] = (
    (WITHOUT, "", False),
    (USER, "ddp:ranks=1", False),
    (PLAIN, "ddp:ranks=1", True),
    ("ddp:tuned=true, the same", "ddp:ranks=1:tuned=true", True),
    ("flat-reduce, the same", "flat-reduce:ranks=1", True),
)
JUDGED = (USER, PLAIN)
MOST = 1.02
BLOCKS = 20
# Turns that are not timed: DDP lays its buckets out anew after its first step, kernels are chosen.
WARM = 5
# How far the losses of these turns may be apart: on a GPU kernels need not add in the same order each time.
_ALIKE = {"cpu": 1e-4, "cuda": 0.05}


@dataclass
class Side:
    """One training, a step each time it is asked."""

    name: str
    recipe: Recipe
    parts: Parts
    steps: Iterator[Counts] = field(init=False)

    def __post_init__(self) -> None:
        reset(self.parts, self.recipe, snapshot(self.parts))
        epochs = range(self.recipe.epochs)
        self.steps = itertools.chain.from_iterable(train_epoch(self.parts, index) for index in epochs)

    def step(self) -> tuple[float, Counts]:
        """Seconds of the next step, from the fetch of its batch on, and what it counted."""
        begin = time.perf_counter()
        counts = next(self.steps)
        if self.parts.device.type == "cuda":
            torch.cuda.synchronize(self.parts.device)  # waits for the device
        return time.perf_counter() - begin, counts


@contextlib.contextmanager
def group_of_one(device: str) -> Iterator[World]:
    """A process group of this process alone: gloo, on a GPU NCCL."""
    place = torch.device("cuda", 0) if device == "cuda" else torch.device("cpu")
    backend, bound = ("nccl", place) if device == "cuda" else ("gloo", None)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, device_id=bound)
    try:
        yield World(0, 1, True, place)
    finally:
        dist.destroy_process_group()


def built(spec: RunSpec, data: AnyData, group: World) -> list[Side]:
    """The sides of a spec, whose optimizations are those that all have."""
    sides = []
    for name, added, grouped in SIDES:
        chosen = (*spec.optimizations, *([parse_optimization(added)] if added else []))
        recipe = make_recipe(spec, data, chosen, group if grouped else ALONE)
        sides.append(Side(name, recipe, build(recipe, unmarked)))
    return sides


def measured(sides: Sequence[Side], turns: int) -> dict[str, list[float]]:
    """Seconds of the steps of each side, by turn; the order within a turn is drawn anew for each.

    Raises:
        SystemExit: the sides do not train to the same losses.
    """
    choice = random.Random(0)  # noqa: S311 - not for secrets
    losses = dict.fromkeys((side.name for side in sides), 0.0)
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(WARM + turns):
        for side in choice.sample(sides, len(sides)):
            seconds, counts = side.step()
            if turn < WARM:
                losses[side.name] += float(counts.loss_sum)
            else:
                found[side.name].append(seconds)
    _same(losses, _ALIKE[sides[0].parts.device.type])
    return found


def _same(losses: dict[str, float], allowed: float) -> None:
    for name, loss in losses.items():
        if not math.isclose(loss, losses[WITHOUT], rel_tol=allowed):
            raise SystemExit(f"{name} trained to a loss of {loss}, {WITHOUT} to {losses[WITHOUT]}: not alike.")


def ratio(times: Sequence[float], without: Sequence[float]) -> Estimate:
    """A side's step over that without DDP: the median over turns, with Student's 95 % interval over blocks of them."""
    found = [t / w for t, w in zip(times, without, strict=True)]
    size = max(1, len(found) // BLOCKS)
    blocks = [median(found[at : at + size]) for at in range(0, len(found) - size + 1, size)]
    spread = mean_ratio(blocks)
    return Estimate(median(found), spread.low, spread.high, len(blocks))


def table(found: dict[str, list[float]]) -> list[str]:
    """The figures in Markdown."""
    lines = ["| one rank, step by step | ms a step | over no ddp (95 %) |", "| --- | ---: | ---: |"]
    for name, times in found.items():
        over = ratio(times, found[WITHOUT])
        bounds = "" if over.low is None or over.high is None else f" ({over.low:.3f} to {over.high:.3f})"
        shown = "1" if name == WITHOUT else f"{over.point:.3f}{bounds}"
        lines.append(f"| {name} | {1000 * median(times):.2f} | {shown} |")
    return lines


def verdicts(found: dict[str, list[float]]) -> tuple[list[str], bool]:
    """A sentence for each side that is judged, and whether all are within what is allowed.

    The median decides. Its interval is shown: on a shared machine it would rather tell how long was measured.
    """
    said, within = [], True
    for name in JUDGED:
        over = ratio(found[name], found[WITHOUT]).point
        within = within and over <= MOST
        said.append(f"{name}: {over - 1:+.1%}, {'within' if over <= MOST else 'above'} the {MOST - 1:.0%} allowed.")
    return said, within
