"""Exact variants in pieces: over few images BatchNorm enlarges even what fp32 rounds, by a thousand times and more."""

from functools import partial

import pytest
from tests.unit.conftest import make_data, make_spec
from torch import nn
from torchvision.models import regnet_y_400mf

import laptime.optimizations
from laptime.engine.check import check_one_step
from laptime.optimizations.products import products
from laptime.spec import OptimizationSpec
from laptime.workloads.cifar import Cifar

# Four images of 32x32 leave each of the last BatchNorms four values a channel.
LAID_OUT, FEW = (OptimizationSpec(name="channels-last"), OptimizationSpec(name="products")), 4
NORM = "trunk_output.block3.block3-2.f.b.1"
WEIGHT = "stem.0.weight"


@pytest.fixture
def regnet(monkeypatch):
    """Data, with a net that enlarges rounding in the workload's place."""
    monkeypatch.setattr(Cifar, "make_model", lambda self, classes, *_: regnet_y_400mf(num_classes=classes))
    return make_data(train=32)


def spoil(monkeypatch, change):
    """Makes what comes last change something else, too."""

    def changed(recipe, options):
        recipe = products(recipe, options)
        change(recipe.model)
        return recipe

    listed = tuple((n, changed if n == "products" else f) for n, f in laptime.optimizations.OPTIMIZATIONS)
    monkeypatch.setattr(laptime.optimizations, "OPTIMIZATIONS", listed)


@pytest.mark.parametrize("seed", range(3))
def test_an_honest_step_that_rounding_carries_far_off_is_right(regnet, seed):
    found = check_one_step(make_spec(optimizations=LAID_OUT, seed=seed), regnet, FEW)
    assert found.passed, found
    assert found.klass == "exact"
    assert found.loss_error > found.loss_tolerance
    assert found.pieces.error < found.pieces.tolerance / 10
    assert found.pieces.gradient_error < 1e-4


def values(model, factor):
    model.get_submodule(NORM).register_forward_pre_hook(lambda m, given: (factor * given[0],))


def gradient(model, factor):
    model.get_parameter(WEIGHT).register_hook(lambda g: factor * g)


def momentum(model):
    model.get_submodule(NORM).momentum = 0.11


def eps(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-3


FAULTS = {
    "values half a percent off": (partial(values, factor=1.005), NORM),
    "a layer's gradient 10 % short": (partial(gradient, factor=0.9), WEIGHT),
    "momentum of one": (momentum, f"running statistics of {NORM}"),
    "eps": (eps, "the "),
}


@pytest.mark.parametrize(("change", "place"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_by_little_is_refused(regnet, monkeypatch, change, place):
    spoil(monkeypatch, change)
    found = check_one_step(make_spec(optimizations=LAID_OUT), regnet, FEW)
    assert not found.passed
    assert not found.pieces.passed
    assert place in found.pieces.place
