"""A recipe that trains in milliseconds."""

import copy
import itertools
from contextlib import contextmanager
from dataclasses import replace

import torch
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime.engine.build import build, make_recipe
from laptime.engine.loop import train_epoch
from laptime.optimizations import apply
from laptime.optimizations.base import Recipe, unmarked
from laptime.spec import OptimizationSpec


def tiny_recipe(*names: str, **options) -> Recipe:
    """Four steps of at most 8 images, with optimizations by name and options by name with underscores."""
    chosen = tuple(OptimizationSpec(name=n, options=options.get(n.replace("-", "_"), {})) for n in names)
    spec = make_spec(epochs=2, batch_size=8)
    recipe = make_recipe(spec, make_data(train=28, test=6, size=8), ())
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return apply(replace(recipe, model=net), chosen)


def built(*names, **changes):
    """A run of batches of 4 after its first epoch; its net draws random numbers."""
    recipe = replace(tiny_recipe(*names), batch_size=4, data=make_data(train=64, test=6, size=8))
    recipe = replace(recipe, model=nn.Sequential(recipe.model, nn.Dropout(0.3)), **changes)
    parts = build(recipe, unmarked)
    for _ in train_epoch(parts, 0):
        pass
    return parts, recipe


def ticking(seconds=0.001):
    """A clock that goes on a little whenever it is asked."""
    ticks = itertools.count()
    return lambda: seconds * next(ticks)


@contextmanager
def left_alone(parts):
    """Fails where a measurement has changed the run: its weights, optimizer, gradients or random numbers."""
    model, optimizer = copy.deepcopy((parts.model.state_dict(), parts.optimizer.state_dict()))
    random = torch.random.get_rng_state()
    yield
    assert all(torch.equal(v, model[k]) for k, v in parts.model.state_dict().items())
    assert str(parts.optimizer.state_dict()) == str(optimizer)
    assert {p.grad for p in parts.model.parameters()} == {None}
    assert torch.equal(torch.random.get_rng_state(), random)
