"""A recipe that trains in milliseconds, for tests of what changes the trajectory."""

from dataclasses import replace

import torch
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime.engine.build import build, make_recipe
from laptime.engine.reset import reset, snapshot
from laptime.optimizations import apply
from laptime.spec import OptimizationSpec


def small_recipe(*chosen: str, epochs: int = 2, train: int = 48, **options):
    """A recipe of a net that is small enough to train in milliseconds, on images of 8x8."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    recipe = make_recipe(make_spec(epochs=epochs), make_data(train=train, size=8), ())
    specs = tuple(OptimizationSpec(name=n, options=options if n == chosen[0] else {}) for n in chosen)
    return apply(replace(recipe, model=net), specs)


def started(recipe):
    parts = build(recipe, mark=lambda _: None)
    reset(parts, recipe, snapshot(parts))
    return parts
