"""The one-step check of two ranks in bf16, right and with faults, for test_deep_ranks.py; rank 0 writes it as JSON.

python deep_ranks.py RESULT.json, with the environment of torch's launcher.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from tests.unit.conftest import make_data, make_spec
from tests.unit.engine import test_full_precision, test_pieces

import laptime.optimizations
from laptime.catalogue import parse_optimization
from laptime.engine.check import check_one_step
from laptime.optimizations import sync_batchnorm
from laptime.optimizations.base import Recipe
from laptime.optimizations.parallel import FlatReduce
from laptime.workloads.cifar import Cifar
from laptime.world import World, opened

BATCH = 8
EXCHANGE = FlatReduce.__call__
HONEST = {
    "flat": ("flat-reduce", "bf16"),
    "ddp, laid out": ("ddp", "bf16", "channels-last", "fused-optimizer"),
    "ddp, compiled": ("ddp", "bf16", "compile:backend=eager"),
    "flat in bf16": ("flat-reduce:reduce=bf16", "bf16"),
    "fp32": ("flat-reduce", "channels-last"),
}


def halved(exchange: FlatReduce, model: torch.nn.Module) -> None:
    """What the ranks agree on is half of what it should be."""
    EXCHANGE(exchange, model)
    for parameter in model.parameters():
        parameter.grad.div_(2)


def brought(name: str, change: Callable[[Recipe], Recipe]):
    """Has an optimization bring a fault with it."""
    listed = laptime.optimizations.OPTIMIZATIONS
    entries = tuple((n, (lambda r, o, f=f: change(f(r, o))) if n == name else f) for n, f in listed)
    return patch.object(laptime.optimizations, "OPTIMIZATIONS", entries)


FAULTS = {
    "half a gradient": lambda: patch.object(FlatReduce, "__call__", halved),
    "nothing exchanged": lambda: patch.object(FlatReduce, "__call__", lambda *_: None),
    "a rank's own statistics": lambda: patch.object(sync_batchnorm, "_summed", lambda values: 2 * values),
    "running statistics not kept": lambda: patch.object(sync_batchnorm.GlooBatchNorm, "_keep", lambda *_: None),
    "labels": lambda: brought("flat-reduce", test_full_precision.labels),
    "one layer in bf16": lambda: brought("bf16", partial(test_pieces.layer, factor=0.9)),
    "BatchNorm's backward in bf16": lambda: brought(
        "bf16", partial(test_pieces.norms, wrong="no projection", chosen=test_pieces.EVERY)
    ),
    "no number in bf16": lambda: brought("bf16", partial(test_pieces.layer, factor=float("nan"))),
}


def checked(world: World, *names: str) -> dict[str, object] | None:
    """What the check finds, on rank 0."""
    spec = make_spec(optimizations=tuple(map(parse_optimization, names)), batch_size=BATCH)
    found = check_one_step(spec, make_data(train=32, size=16), BATCH, world)
    return found.model_dump(mode="json") if found else None


def main(result: Path) -> None:
    Cifar.make_model = lambda self, classes, weights, channels=3: test_pieces.Deep(classes)
    with opened("cpu") as world:
        found = {name: checked(world, *names) for name, names in HONEST.items()}
        for name, fault in FAULTS.items():
            with fault():
                found[name] = checked(world, *HONEST["flat"])
        with patch("laptime.engine.check.compare_pieces", lambda *_: None):
            found["nothing looked at bf16"] = checked(world, *HONEST["flat"])
        if world.first:
            result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
