"""A compiled step in half precision that can't be cut: in fp32 it is close to the baseline's, or wrong."""

import dataclasses
from functools import partial

import pytest
import torch
from tests.unit.conftest import make_spec
from tests.unit.engine import test_pieces as pieces
from tests.unit.engine.test_pieces import EVERY, MIDDLE, deep

import laptime.optimizations
from laptime.engine import check, full_precision
from laptime.engine.check import check_one_step
from laptime.optimizations.compiling import compiled
from laptime.spec import OptimizationSpec

__all__ = ["deep"]

# Tracing is what counts here; inductor would spend a minute in the C++ compiler.
COMPILED = OptimizationSpec(name="compile", options={"backend": "eager"})
BF16 = OptimizationSpec(name="bf16")
ASKED = make_spec(optimizations=(BF16, COMPILED))


@pytest.fixture(autouse=True)
def afresh():
    """Compiled code is kept by the code that it came from, and nothing watches a net's hooks."""
    torch._dynamo.reset()


def spoil(monkeypatch, change):
    """Makes what compiles change something else, too; the uncompiled sides stay right."""

    def changed(recipe, options):
        return compiled(change(recipe), options)

    listed = tuple((n, changed if n == "compile" else f) for n, f in laptime.optimizations.OPTIMIZATIONS)
    monkeypatch.setattr(laptime.optimizations, "OPTIMIZATIONS", listed)


def labels(recipe):
    """Those of other images."""
    forward = recipe.forward

    def wrong(net, batch):
        return forward(net, dataclasses.replace(batch, labels=batch.labels.roll(1)))

    return dataclasses.replace(recipe, forward=wrong)


@pytest.mark.parametrize("batch", [8, 32])
def test_an_honest_step_is_right_though_half_precision_carries_it_far_off(deep, batch):
    found = check_one_step(ASKED, deep, batch)
    assert found.passed, found
    assert found.gradient_error > found.gradient_tolerance
    assert found.pieces is None
    assert found.full_precision.gradient_error < 0.01
    assert "; in fp32, off from the baseline by" in found.findings()


@pytest.mark.parametrize(
    "change",
    [
        partial(pieces.norms, wrong="no projection", chosen=EVERY),
        partial(pieces.norms, wrong="variance", chosen=[MIDDLE]),
        pieces.momentum,
        partial(pieces.gradients, factor=0.5, chosen=None),
        partial(pieces.layer, factor=0.9),
        labels,
    ],
    ids=["projection", "variance", "momentum", "half", "values", "labels"],
)
def test_what_is_wrong_is_refused(deep, monkeypatch, change):
    spoil(monkeypatch, change)
    assert not check_one_step(ASKED, deep, 8).passed


def test_it_is_asked_only_where_it_decides(deep, monkeypatch):
    steps = check.Steps(ASKED, deep)
    for others in ((COMPILED,), (BF16,), (OptimizationSpec(name="flat-reduce"),)):
        assert full_precision.compare_in_full_precision(steps, others) is None
    assert check_one_step(make_spec(optimizations=(COMPILED,)), deep, 8).full_precision is None
    monkeypatch.setitem(check.TOLERANCES, "numeric", check.Tolerance(0.5, 2.0))
    found = check_one_step(ASKED, deep, 8)
    assert found.passed
    assert found.full_precision is None


def test_it_decides_only_where_layers_were_compared_in_half_precision(deep, monkeypatch):
    """Else nothing would have looked at that: a step far off in it would pass by what it is in fp32."""
    monkeypatch.setattr(check, "compare_layers", lambda *_: None)
    found = check_one_step(ASKED, deep, 8)
    assert found.gradient_error > found.gradient_tolerance
    assert found.full_precision is None
    assert not found.passed


@pytest.mark.parametrize("error", [MemoryError(), ValueError("a fault")])
def test_where_it_has_no_room_rounding_says_what_is_allowed(deep, monkeypatch, error):
    def full(*_):
        raise error

    monkeypatch.setattr(check, "compare_in_full_precision", full)
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="a fault"):
            check_one_step(ASKED, deep, 8)
        return
    found = check_one_step(ASKED, deep, 8)
    assert found.passed
    assert found.gradient_tolerance > check.TOLERANCES["numeric"].gradient


def test_a_step_that_is_no_number_is_refused_though_it_is_right_in_fp32(deep, monkeypatch):
    def broken(recipe):
        return pieces.layer(recipe, float("nan")) if recipe.precision == "bf16" else recipe

    spoil(monkeypatch, broken)
    found = check_one_step(ASKED, deep, 8)
    assert found.full_precision.passed
    assert not found.passed
