"""What one rank of two finds out, for test_two_ranks.py; rank 0 writes it as JSON.

python two_ranks.py RESULT.json, with the environment of torch's launcher.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tests.unit.conftest import CLASSES, make_data, make_spec
from torch import nn

from laptime.catalogue import parse_optimization
from laptime.engine.build import build
from laptime.engine.check import check_one_step
from laptime.engine.evaluate import evaluate, totals
from laptime.engine.loop import train_epoch
from laptime.engine.plain import plain_state
from laptime.engine.reset import reset, snapshot
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations import apply, buckets
from laptime.optimizations.base import Recipe
from laptime.optimizations.data import items
from laptime.optimizations.step import tutorial_step
from laptime.records import EpochRecord
from laptime.values.draws import seed_all
from laptime.workloads.base import Batch, LossesBySample, classify, classify_each
from laptime.world import ALONE, World, opened

# 37 images in batches of 10: full ones are shared out evenly, the last one of 7 as 4 and 3.
TRAIN, TEST, BATCH = 37, 13, 10
PARALLEL = ("ddp", "flat-reduce")
SMALL = "large-batch:size=12"
SELECTING = "selective-backprop:keep=0.5:begin=0:end=1:every=3"


class Tiny:
    """A net of two convolutions; the second works on a 2x2 map, so that dead taps have something to crop."""

    name = "tiny"

    def __init__(self, norm: bool = True) -> None:
        self.norm = norm

    def make_model(self, classes: int, weights: str) -> nn.Module:
        norms = [nn.BatchNorm2d(4), nn.BatchNorm2d(6)] if self.norm else [nn.Identity(), nn.Identity()]
        first, second = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 6, 5, padding=2)
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes))
        return nn.Sequential(first, norms[0], nn.ReLU(), nn.AvgPool2d(4), second, norms[1], nn.ReLU(), *head)

    forward = staticmethod(classify)

    def by_sample(self, smoothing: float) -> LossesBySample:
        return lambda model, batch: classify_each(model, replace(batch, inputs=batch.inputs.double()), smoothing)


class Wide(Tiny):
    """With layers that fill several buckets, and dropout, which draws in each step; 2.5 MiB in float64."""

    def make_model(self, classes: int, weights: str) -> nn.Module:
        wider = (nn.Linear(classes, 400), nn.Dropout(0.1), nn.Linear(400, 800), nn.Linear(800, classes))
        return nn.Sequential(super().make_model(classes, weights), *wider)


def recipe_for(workload: Tiny, world: World, *chosen: str, most: int | None = None) -> Recipe:
    """In float64, where equal means equal."""
    torch.manual_seed(3)
    data = make_data(TRAIN, TEST, size=16)

    def in_double(model: nn.Module, batch: Batch):
        return classify(model, replace(batch, inputs=batch.inputs.double()))

    base = Recipe(
        workload=workload,
        model=workload.make_model(len(CLASSES), "none"),
        data=data,
        device=torch.device("cpu"),
        image_size=(16, 16),
        batch_size=BATCH,
        learning_rate=3e-3,
        epochs=2,
        seed=5,
        make_loader=items,
        forward=in_double,
        step=tutorial_step,
        world=world,
        micro_batch=most,
    )
    specs = tuple(map(parse_optimization, chosen))
    before = apply(base, tuple(o for o in specs if o.name not in PARALLEL))
    double = replace(before, model=copy.deepcopy(before.model).double())
    return apply(double, tuple(o for o in specs if o.name in PARALLEL))


def train(workload: Tiny, world: World, *chosen: str, most: int | None = None) -> dict[str, object]:
    """Two epochs: losses, accuracies, the test split, the weights."""
    recipe = recipe_for(workload, world, *chosen, most=most)
    parts = build(recipe, mark=lambda _: None)
    reset(parts, recipe, snapshot(parts))
    found = {"epochs": [], "samples": []}
    for epoch in range(2):
        loss, accuracy, samples = totals(list(train_epoch(parts, epoch)), world)
        found["epochs"].append([loss, accuracy])
        found["samples"].append(samples)
    state = plain_state(parts.model)
    weights = torch.cat([v.flatten().double() for k, v in state.items() if "running" not in k and "num_" not in k])
    found["apart"] = max(world.gathered(float((weights - world.agreed(weights)).abs().max())))
    found["weights"] = weights.tolist()
    world.same(parts.model, parameters=False)
    found["running"] = [v.tolist() for k, v in plain_state(parts.model).items() if "running" in k]
    found["test"] = totals([evaluate(parts, recipe, recipe.data.test)], world)
    return found


def averages_apart(world: World) -> tuple[tuple[float, ...], EpochRecord]:
    """How far each rank's moving average is from rank 0's after an epoch that ends with its evaluation; the epoch."""
    recipe = recipe_for(Tiny(), world, "flat-reduce", "ema")
    marks = StepMarks()
    parts = build(recipe, marks)
    reset(parts, recipe, snapshot(parts))
    (epoch,) = Session(parts, recipe, marks, lambda *_: None).counted(Plan(1, 0, None))
    held = torch.cat([v.flatten().double() for v in parts.evaluated.state_dict().values()])
    return world.gathered(float((held - world.agreed(held)).abs().max())), epoch


def left_behind(world: World, *chosen: str) -> list[object]:
    """What a try-out could have moved: the next numbers of the generators, the net, and the order of the samples."""
    seed_all(7)
    recipe = recipe_for(Wide(), world, *chosen)
    drawn = [float(torch.rand(())), random.random(), float(np.random.rand())]
    state = [v.flatten().tolist() for v in recipe.model.state_dict().values()]
    assert all(p.grad is None for p in recipe.model.parameters())
    return [drawn, state, [b.labels.tolist() for b in recipe.make_loader(recipe).epoch(0)]]


def tried_out(world: World) -> dict[str, object]:
    """A run that tries sizes of buckets out beside runs with a given size, and one whose steps are too long for it."""
    tuned, found = "ddp:batchnorm=sync:tuned=true", dict[str, object]()
    sizes = buckets.candidates(recipe_for(Wide(), world))
    found["sizes"] = list(sizes)
    found["tried"] = train(Wide(), world, tuned)
    found["given"] = [train(Wide(), world, f"{tuned}:bucket_mb={size}") for size in sizes]
    recipe = recipe_for(Wide(), world, tuned)
    found["chosen"] = world.collected([recipe.settled["ddp"]["bucket_mb"], recipe.notes[-1]])
    found["given settles"] = recipe_for(Wide(), world, f"{tuned}:bucket_mb=1").settled
    found["alike"] = left_behind(world, tuned) == left_behind(world, f"{tuned}:bucket_mb=1")
    buckets._LONGEST_STEP_S = 0.0
    slow = recipe_for(Wide(), world, tuned)
    found["slow"] = [slow.settled["ddp"]["bucket_mb"], slow.notes[-1]]
    return found


CASES = {
    "ddp sync": (True, ("ddp:batchnorm=sync",), ()),
    "tuned sync": (
        True,
        ("ddp:batchnorm=sync:tuned=true", "resident", "no-reads", "channels-last", "dead-taps", SMALL),
        ("resident", "no-reads", SMALL),
    ),
    "flat sync": (
        True,
        ("flat-reduce:batchnorm=sync", "resident", "channels-last", "fused-optimizer", "dead-taps"),
        (),
    ),
    "ddp local, no BatchNorm": (False, ("ddp",), ()),
    "flat local": (True, ("flat-reduce",), ()),
}


def main(result: Path) -> None:
    with opened("cpu") as world:
        found: dict[str, object] = {"world": [world.rank, world.size, torch.get_num_threads()]}
        for name, (norm, several, one) in CASES.items():
            ranks = train(Tiny(norm), world, *several)
            found[name] = [ranks, train(Tiny(norm), ALONE, *one) if world.first else None]
        # Of its 5 a rank makes parts of 3 and 2; of the last 7 samples one makes two parts, and the other one of its 3.
        for name in ("ddp", "ddp:tuned=true:bucket_mb=1", "ddp:tuned=true", "flat-reduce"):
            found[f"{name} in parts"] = train(Tiny(norm=False), world, name, most=3)
        found["bf16"] = train(Tiny(), world, "flat-reduce:batchnorm=sync:reduce=bf16")["epochs"]
        several = ("ddp:batchnorm=sync", "ddp:batchnorm=sync:tuned=true:bucket_mb=1", "flat-reduce:batchnorm=sync")
        found["selecting"] = [train(Tiny(), world, name, SELECTING) for name in several]
        found["buckets"] = tried_out(world)
        found["averages apart"], epoch = averages_apart(world)
        found["epoch"] = epoch.model_dump(mode="json")
        found["collected"] = world.collected({"rank": world.rank})
        found["gathered"] = world.gathered(10.0 + world.rank)
        found["agreed"] = world.agreed(f"rank {world.rank}")
        one_process = ("resident", "channels-last", "dead-taps", "products:layers=all", "large-batch")
        chosen = ("ddp:tuned=true:bucket_mb=25", *one_process)
        for name, more in (("check", ()), ("check bf16", ("bf16",)), ("check weak", ("ddp:scaling=weak",))):
            listed = tuple(map(parse_optimization, (*chosen[bool(more) and "ddp" in more[-1] :], *more)))
            checked = check_one_step(make_spec(optimizations=listed), make_data(24, 4, size=32), 8, world)
            found[name] = checked.model_dump() if checked else None
        if world.first:
            result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
