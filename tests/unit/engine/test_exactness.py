"""Each exact and numeric optimization against the baseline: one step's loss and gradients, and a short training."""

import dataclasses
from functools import cache

import pytest
import torch
from tests.unit.conftest import make_data, make_spec

import laptime.optimizations
from laptime.catalogue import LADDERS, OPTIMIZATIONS, find_optimization, find_workload
from laptime.engine import check, one_step
from laptime.engine.build import build, make_recipe
from laptime.engine.check import TOLERANCES, check_one_step, comparable
from laptime.engine.distances import Farthest, relative_error, worst_layer
from laptime.engine.evaluate import totals
from laptime.engine.layers import beside_rounding
from laptime.engine.loop import train_epoch
from laptime.engine.plain import plain_state
from laptime.engine.reset import reset, snapshot
from laptime.optimizations.products import products
from laptime.spec import OptimizationSpec

# Those for CUDA alone that do the same work on a CPU, but for the stream and the recording.
AS_ON_CUDA = ("pinned", "graph")
# What brings a loop of its own, or is for another workload alone (workloads/test_detection.py), has tests of its own.
FOR_IT = {o.name for o in OPTIMIZATIONS if not o.workload} - find_workload("cifar").refused.keys()
OURS = [o for o in OPTIMIZATIONS if o.klass in TOLERANCES and not o.alone and o.name in FOR_IT]
JUDGED = [o.name for o in OURS if "cpu" in o.devices or o.name in AS_ON_CUDA]


# Tracing is what these tests are about; inductor would spend a minute in the C++ compiler.
QUICKER = {"compile": {"backend": "eager"}}


def chosen(names):
    return tuple(OptimizationSpec(name=n, options=QUICKER.get(n, {})) for n in names)


def spec_with(*names: str, **changes):
    return make_spec(optimizations=chosen(names), **changes)


@pytest.mark.parametrize("name", JUDGED)
def test_one_step_alone(name, image_data):
    found = check_one_step(spec_with(name), image_data, 16)
    assert found.passed, found
    assert found.klass == find_optimization(name).klass
    alone = find_optimization(name).stage in ("precision", "parallel")
    assert (found.layer is None) == alone == ("own precision" not in found.findings())


def test_one_step_of_all_together(image_data):
    found = check_one_step(spec_with(*(r for r in LADDERS["cpu"] if r in FOR_IT)), image_data, 48)
    assert found.passed, found
    assert found.klass == "numeric"


def test_statistical_optimizations_are_not_compared():
    assert comparable(spec_with("large-batch").optimizations) == ()
    assert check_one_step(spec_with("large-batch"), make_data(), 16) is None


@pytest.mark.parametrize(("name", "factor"), [("resident", -3.0), ("resident", 0.9), ("bf16", 0.5), ("bf16", 0.0)])
def test_a_wrong_gradient_is_refused(image_data, monkeypatch, name, factor):
    spoil_the_variant(monkeypatch, factor)
    outcome = check_one_step(spec_with(name), image_data, 16)
    assert not outcome.passed
    assert outcome.gradient_error > outcome.gradient_tolerance
    assert outcome.loss_error <= outcome.loss_tolerance


def spoil_the_variant(monkeypatch, factor: float) -> None:
    """Makes all gradients of the variant's side off by a factor, whatever it is compared with."""
    taken = one_step.one_step

    def spoiled(spec, data, chosen, *side):
        step = taken(spec, data, chosen, *side)
        wrong = {k: factor * v for k, v in step.gradients.items()}
        return dataclasses.replace(step, gradients=wrong) if chosen else step

    monkeypatch.setattr(one_step, "one_step", spoiled)


def spoil_one_layer(monkeypatch, factor: float) -> None:
    """Makes the products' kernel of one layer give a gradient that is off by a factor."""
    listed = laptime.optimizations.OPTIMIZATIONS

    def spoiled(recipe, options):
        changed = products(recipe, {**options, "layers": "all"})
        changed.model.get_submodule("layer3.1.conv2").weight.register_hook(lambda g: factor * g)
        return changed

    entries = tuple((n, spoiled if n == "products" else f) for n, f in listed)
    monkeypatch.setattr(laptime.optimizations, "OPTIMIZATIONS", entries)


def test_a_kernel_that_is_30_percent_off_in_one_layer_is_refused(image_data, monkeypatch):
    spoil_one_layer(monkeypatch, 0.7)
    outcome = check_one_step(spec_with("products", "bf16"), image_data, 8)
    assert not outcome.passed
    assert outcome.layer == "layer3.1.conv2.weight"
    assert outcome.layer_error == pytest.approx(0.3, abs=0.02)
    assert "layer3.1.conv2.weight (tolerance" in outcome.findings()
    # The rounding of the whole step hides it from the wide comparison.
    assert outcome.gradient_error <= outcome.gradient_tolerance


def test_what_rounding_does_to_the_net_itself_is_no_mistake(image_data, monkeypatch):
    """Where a compiler leaves nothing to cut, and fp32 no room: the usual tolerance refuses an honest bf16 step."""
    monkeypatch.setattr(check, "compare_in_full_precision", lambda *_: None)
    monkeypatch.setitem(TOLERANCES, "numeric", check.Tolerance(3e-2, 0.01))
    # The same kernels in the same layout: no bit differs from plain bf16 on any CPU, and rounding is against fp32.
    asked = spec_with("fused-optimizer", "bf16", "compile")
    assert 0 < check.check_one_step(asked, image_data, 8).gradient_tolerance - 0.01 < 1  # the real one, of this net
    monkeypatch.setattr(check, "_moved_by_rounding", lambda steps, before: 0.5)
    outcome = check_one_step(asked, image_data, 8)
    assert outcome.passed, outcome
    assert outcome.pieces is None
    assert outcome.gradient_tolerance == pytest.approx(1.5)


@pytest.mark.parametrize("factor", [0.7, 0.0, -20.0])
def test_a_wrong_kernel_is_refused_on_such_a_net_too(image_data, monkeypatch, factor):
    monkeypatch.setitem(TOLERANCES, "numeric", check.Tolerance(3e-2, 0.01))
    spoil_one_layer(monkeypatch, factor)
    outcome = check_one_step(spec_with("products", "bf16"), image_data, 8)
    assert not outcome.passed
    assert outcome.layer == outcome.pieces.place == "layer3.1.conv2.weight"
    assert not outcome.pieces.passed
    assert (outcome.loss_tolerance, outcome.gradient_tolerance) == (3e-2, 0.01)


def test_the_wide_tolerance_grows_for_nothing_else():
    def grown(klass, layer_error, error=(0.034, 1.1), moved=0.5):
        sharp = None if layer_error is None else Farthest("x", layer_error, 0.1)
        return check._tolerance(klass, check.Tolerance(*error), sharp, lambda: moved)

    assert grown("numeric", 0.009).gradient == pytest.approx(1.5)
    for klass, layer_error in (("exact", 0.0), ("numeric", 0.02), ("numeric", None), ("numeric", float("nan"))):
        assert grown(klass, layer_error) == TOLERANCES[klass]
    assert grown("numeric", 0.009, moved=0.01) == TOLERANCES["numeric"]


@pytest.mark.parametrize("error", [(0.034, 0.4), (0.01, 1.1)])
def test_the_loss_has_the_same_share_of_it_whichever_asks(error):
    """An honest step of EfficientNet-B5 without dead taps was 0.034 off in the loss, and its worst layer 0.003."""
    found = check._tolerance("numeric", check.Tolerance(*error), Farthest("x", 0.003, 0.1), lambda: 0.6)
    assert found.gradient == pytest.approx(1.8)
    assert found.loss == pytest.approx(3e-2 * 1.8 / 0.48)


@pytest.mark.parametrize(
    ("errors", "worst"),
    [
        ({"blurred": 0.15, "sharp": 0.05}, ("blurred", 0.15, 0.25)),
        ({"blurred": 0.15, "sharp": 0.12}, ("sharp", 0.12, 0.1)),
        ({"blurred": 0.30, "sharp": 0.05}, ("blurred", 0.30, 0.25)),
        ({"another": float("inf")}, ("another", float("inf"), 0.1)),
    ],
)
def test_a_layer_that_autocast_rounds_far_off_may_be_as_far_from_autocast(errors, worst):
    assert beside_rounding(errors, {"blurred": 0.2, "sharp": 0.02}) == Farthest(*worst)


def test_a_gradient_that_is_not_finite_is_the_worst():
    good, bad = {"a": torch.ones(2), "b": torch.ones(2)}, {"a": 9 * torch.ones(2), "b": torch.tensor([1.0, torch.nan])}
    assert worst_layer(bad, good)[0] == "b"
    assert worst_layer({"a": torch.ones(2)}, good) == ("b", torch.inf)
    assert worst_layer(good, good)[1] == 0


@cache  # of the baseline, which each is held against
def trained(*names: str):
    """Losses and final weights of one epoch in float64, where exact means equal up to reordering."""
    data = make_data(train=32)
    recipe = make_recipe(spec_with(*names), data, chosen(names))
    parts = build(recipe, mark=lambda _: None)
    parts.model.double()
    parts.optimizer = type(parts.optimizer)(parts.model.parameters(), lr=1e-3, **recipe.optimizer_options)
    forward = parts.forward

    def in_double(model, batch):
        return forward(model, type(batch)(batch.inputs.double(), batch.labels))

    parts.forward = in_double
    losses = [float(c.loss_sum) for epoch in range(2) for c in train_epoch(parts, epoch)]
    return losses, plain_state(parts.model)


@pytest.mark.parametrize("name", [n for n in JUDGED if find_optimization(n).klass == "exact"])
def test_exact_ones_train_to_the_same_weights(name):
    losses, state = trained()
    found_losses, found_state = trained(name)
    assert found_losses == pytest.approx(losses, rel=1e-9)
    assert relative_error(found_state, state) < 1e-8


NUMERIC = [n for n in JUDGED if find_optimization(n).klass == "numeric"]


@cache
def learnt(*names: str):
    """Loss and accuracy of the last of four short epochs."""
    recipe = make_recipe(spec_with(*names), make_data(train=96), chosen(names))
    parts = build(recipe, mark=lambda _: None)
    return totals([list(train_epoch(parts, epoch)) for epoch in range(4)][-1])


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.bf16] * (n == "bf16")) for n in NUMERIC])
def test_numeric_ones_learn_as_well_in_a_short_training(name):
    loss, accuracy, _ = learnt()
    found_loss, found_accuracy, _ = learnt(name)
    assert accuracy > 0.9
    assert found_accuracy > accuracy - 0.05
    assert found_loss < loss + 0.1


def test_reset_puts_everything_back(recipe):
    parts = build(recipe, mark=lambda _: None)
    reset(parts, recipe, snapshot(parts))
    before = {k: v.clone() for k, v in parts.model.state_dict().items()}
    first = [float(c.loss_sum) for c in train_epoch(parts, 0)]
    tensors = {k: v.data_ptr() for k, v in parts.model.state_dict().items()}
    reset(parts, recipe, before)
    assert {k: v.data_ptr() for k, v in parts.model.state_dict().items()} == tensors
    assert [float(c.loss_sum) for c in train_epoch(parts, 0)] == first


def test_one_cycle_ends_near_zero(image_data):
    recipe = make_recipe(spec_with("large-batch", epochs=2), image_data, spec_with("large-batch").optimizations)
    parts = build(recipe, mark=lambda _: None)
    reset(parts, recipe, snapshot(parts))
    rates = []
    for epoch in range(2):
        for _ in train_epoch(parts, epoch):
            rates.append(parts.optimizer.param_groups[0]["lr"])
    assert max(rates) <= recipe.learning_rate + 1e-12
    assert rates[-1] < 0.1 * recipe.learning_rate
    assert torch.isfinite(torch.tensor(rates)).all()
