"""A step cut at its BatchNorms: on a net that enlarges rounding honest steps pass, and each wrong kernel is refused.

The net stands for EfficientNet-B5, which takes seconds: its 40 BatchNorms over few samples do the same to an honest
bf16 step, whose gradient is off by about its own length.
"""

import dataclasses
from functools import partial

import pytest
import torch
from tests.unit.conftest import make_data, make_spec
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

import laptime.optimizations
from laptime.engine.check import check_one_step
from laptime.engine.one_step import Side, Steps
from laptime.engine.pieces import Cuts, compare_pieces
from laptime.optimizations.precision import bf16
from laptime.spec import OptimizationSpec
from laptime.workloads.cifar import Cifar

BLOCKS, MIDDLE = 40, 20
KINDS = {"bf16": ("bf16",), "laid out": ("channels-last", "fused-optimizer", "bf16")}


class Deep(nn.Module):
    """BatchNorm, SiLU and a convolution, 40 times; images [B, 3, H, W] to [B, classes]."""

    def __init__(self, classes: int, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(BLOCKS))
        self.act = nn.SiLU(inplace=True)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(BLOCKS))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        found = self.first(images)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            found = conv(self.act(norm(found)))
        return self.head(found.mean((2, 3)))


@pytest.fixture
def deep(monkeypatch):
    """Data, with a net of many BatchNorms in the workload's place."""
    monkeypatch.setattr(Cifar, "make_model", lambda self, classes, weights, channels=3: Deep(classes))
    return make_data(train=32, size=16)


def asked(*names, **changes):
    return make_spec(optimizations=tuple(OptimizationSpec(name=n) for n in names), **changes)


@pytest.mark.parametrize("names", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("batch", [4, 8, 32])
@pytest.mark.parametrize("seed", range(3))
def test_an_honest_step_that_rounding_carries_far_off_is_right(deep, names, batch, seed):
    found = check_one_step(asked(*names, seed=seed), deep, batch)
    assert found.gradient_error > found.gradient_tolerance == 0.48
    assert found.passed, found
    # No more is left than the format rounds: a thousand times less than of the whole step.
    assert max(found.pieces.error, found.pieces.gradient_error) < 0.01
    assert found.pieces.loss_error < 1e-3
    assert "from the baseline's own values at each BatchNorm on" in found.findings()


def spoil(monkeypatch, change):
    """Has bf16 bring a fault with it: `change` is given the recipe and returns another."""
    listed = laptime.optimizations.OPTIMIZATIONS
    entries = tuple((n, (lambda r, o: change(bf16(r, o))) if n == "bf16" else f) for n, f in listed)
    monkeypatch.setattr(laptime.optimizations, "OPTIMIZATIONS", entries)


class _Norm(torch.autograd.Function):
    """BatchNorm with one thing wrong; images [B, C, H, W]."""

    @staticmethod
    def forward(ctx, images, weight, bias, wrong):
        values, dims = images.float(), (0, 2, 3)
        centred = values - values.mean(dims, keepdim=True)
        stretched = 1.2 if wrong == "variance" else 1.0
        scale = (stretched * values.var(dims, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        ctx.save_for_backward(centred * scale, scale, weight)
        ctx.wrong = wrong
        return (centred * scale * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)).to(images.dtype)

    @staticmethod
    def backward(ctx, gradient):
        normed, scale, weight = ctx.saved_tensors
        given, dims = gradient.float(), (0, 2, 3)
        found = given
        if ctx.wrong != "no mean":
            found = found - given.mean(dims, keepdim=True)
        if ctx.wrong != "no projection":
            found = found - normed * (given * normed).mean(dims, keepdim=True)
        found = (found * scale * weight.view(1, -1, 1, 1)).to(gradient.dtype)
        return found, (given * normed).sum(dims), given.sum(dims), None


def norms(recipe, wrong, chosen):
    for index in chosen:
        norm = recipe.model.norms[index]

        def forward(images, norm=norm, right=norm.forward):
            if not norm.training:  # these kernels are wrong in training alone, where nothing else looks
                return right(images)
            right(images)  # the running statistics are right
            return _Norm.apply(images, norm.weight, norm.bias, wrong)

        norm.forward = forward
    return recipe


def momentum(recipe):
    for norm in recipe.model.norms:
        norm.momentum = 0.3
    return recipe


def gradients(recipe, factor, chosen):
    for name, values in recipe.model.named_parameters():
        if name == chosen or not chosen:
            values.register_hook(lambda g: factor * g)
    return recipe


def layer(recipe, factor):
    recipe.model.convs[MIDDLE].register_forward_hook(lambda m, a, found: factor * found)
    return recipe


def loss(recipe, change):
    forward = recipe.forward
    return dataclasses.replace(recipe, forward=lambda net, batch: change(forward(net, batch), net, batch))


def smoothed(output, net, batch):
    return dataclasses.replace(output, loss=F.cross_entropy(net.last, batch.labels, label_smoothing=0.3))


def with_scores(recipe):
    """Keeps what the net gave where `smoothed` finds it."""
    recipe.model.head.register_forward_hook(lambda m, a, found: setattr(recipe.model, "last", found))
    return loss(recipe, smoothed)


EVERY = range(BLOCKS)
FAULTS = {
    "variance of one": (partial(norms, wrong="variance", chosen=[MIDDLE]), f"norms.{MIDDLE}"),
    "variance of all": (partial(norms, wrong="variance", chosen=EVERY), "norms."),
    "no mean in backward": (partial(norms, wrong="no mean", chosen=EVERY), "gradient that norms."),
    "no projection in one's backward": (
        partial(norms, wrong="no projection", chosen=[MIDDLE]),
        f"gradient that norms.{MIDDLE} gives",
    ),
    "no projection in backward": (partial(norms, wrong="no projection", chosen=EVERY), "gradient that norms."),
    "momentum": (momentum, "running statistics of norms."),
    "half a gradient": (partial(gradients, factor=0.5, chosen=None), "."),
    "one layer's gradient": (partial(gradients, factor=0.7, chosen=f"convs.{MIDDLE}.weight"), f"convs.{MIDDLE}.weight"),
    "zeros": (partial(layer, factor=0.0), f"value that reaches norms.{MIDDLE + 1}"),
    "one layer's values": (partial(layer, factor=0.9), f"value that reaches norms.{MIDDLE + 1}"),
    "smoothed labels": (with_scores, "."),
}


@pytest.mark.parametrize(("change", "place"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_wrong_is_refused_on_such_a_net_too(deep, monkeypatch, change, place, seed):
    spoil(monkeypatch, change)
    found = check_one_step(asked("bf16", seed=seed), deep, 8)
    assert not found.passed
    assert not found.pieces.passed
    assert place in found.pieces.place


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(deep, monkeypatch, wrong):
    spoil(monkeypatch, partial(layer, factor=wrong))
    found = check_one_step(asked("bf16"), deep, 8)
    assert not found.passed
    assert found.pieces.place == f"the value that reaches norms.{MIDDLE + 1}"


def test_a_loss_that_is_ten_percent_off_is_seen_by_itself(deep, monkeypatch):
    longer = lambda output, net, batch: dataclasses.replace(output, loss=1.1 * output.loss)  # noqa: E731
    spoil(monkeypatch, partial(loss, change=longer))
    found = check_one_step(asked("bf16"), deep, 8).pieces
    assert found.loss_error == pytest.approx(0.1, abs=0.01)
    assert found.gradient_error <= found.gradient_tolerance  # that of the last piece alone is longer
    assert found.error == pytest.approx(0.1, abs=0.01)


def test_a_loss_that_is_off_is_refused_though_its_gradient_is_right(deep, monkeypatch):
    more = lambda output, net, batch: dataclasses.replace(output, loss=output.loss + 0.05 * output.loss.detach())  # noqa: E731
    spoil(monkeypatch, partial(loss, change=more))
    found = check_one_step(asked("bf16"), deep, 8)
    assert max(found.pieces.error, found.pieces.gradient_error) < 0.01
    assert found.pieces.loss_error == pytest.approx(0.05, abs=0.005)
    assert not found.passed


def test_a_step_that_is_no_number_once_is_refused_though_its_pieces_are_right(deep, monkeypatch):
    factors = iter((float("nan"), 1.0))  # of the whole step, then of that in pieces
    spoil(monkeypatch, lambda recipe: layer(recipe, next(factors)))
    found = check_one_step(asked("bf16"), deep, 8)
    assert found.pieces.passed
    assert not found.passed


def steps_of(data, *names):
    chosen = asked(*names)
    return Steps(chosen.model_copy(update={"batch_size": 8}), data), chosen.optimizations


def test_a_cut_changes_nothing_of_the_baselines_step(deep):
    steps, _ = steps_of(deep)
    plain = steps.take((), Side())
    kept = Cuts()
    found = steps.cut((), Side(), kept)
    again = Cuts(kept)
    replaced = steps.cut((), Side(), again)
    for other in (found, replaced):
        assert other.loss == plain.loss
        assert all(torch.equal(other.gradients[k], v) for k, v in plain.gradients.items())
    assert len(again.errors) == len(kept.kept) == 4 * BLOCKS
    assert set(again.errors.values()) == {0.0}


def test_a_scaled_loss_is_seen_through(deep):
    """fp16's gradients are multiplied on their way; the values that go on in their place must be, too."""
    found = compare_pieces(*steps_of(deep, "fp16"), "numeric")
    assert found.passed, found
    assert found.gradient_error < 1e-3


def test_a_net_that_calls_a_norm_twice_has_two_places_of_it(deep, monkeypatch):
    def shared(self, classes, weights, channels=3):
        net = Deep(classes)
        net.norms[MIDDLE + 1] = net.norms[MIDDLE]
        return net

    monkeypatch.setattr(Cifar, "make_model", shared)
    steps, chosen = steps_of(deep, "bf16")
    kept = Cuts()
    steps.cut((), Side(), kept)
    assert f"the value that reaches norms.{MIDDLE} (call 2)" in kept.kept
    assert compare_pieces(steps, chosen, "numeric").passed
    spoil(monkeypatch, lambda r: layer(r, 0.9))
    assert compare_pieces(steps, chosen, "numeric").place == f"the value that reaches norms.{MIDDLE} (call 2)"


def without_a_norm(recipe):
    recipe.model.norms[MIDDLE] = nn.Identity()
    return recipe


def with_another_shape(recipe):
    recipe.model.convs[MIDDLE].register_forward_hook(lambda m, a, found: found[:, :, 1:])
    return recipe


def with_one_more(recipe):
    recipe.model.act = nn.Sequential(nn.BatchNorm2d(8), nn.SiLU())
    return recipe


@pytest.mark.parametrize("change", [without_a_norm, with_another_shape, with_one_more])
def test_nets_that_are_not_alike_can_not_be_compared_by_pieces(deep, monkeypatch, change):
    spoil(monkeypatch, change)
    found = check_one_step(asked("bf16"), deep, 8)
    assert found.pieces is None
    assert not found.passed


def test_a_net_without_batchnorm_has_no_pieces(deep, monkeypatch):
    monkeypatch.setattr(nn, "BatchNorm2d", lambda width: nn.GroupNorm(2, width))
    assert compare_pieces(*steps_of(deep, "bf16"), "numeric") is None


def test_a_step_that_is_compiled_or_of_several_processes_is_not_cut(deep):
    eager = OptimizationSpec(name="compile", options={"backend": "eager"})
    steps, chosen = steps_of(deep, "bf16")
    for whole in (eager, OptimizationSpec(name="ddp")):
        assert compare_pieces(steps, (*chosen, whole), "numeric") is None
    assert compare_pieces(steps, chosen, "numeric") is not None
