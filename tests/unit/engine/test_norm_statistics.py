"""What a step brings BatchNorm's running statistics: no gradient shows it, and evaluation computes with it."""

import copy
import math
from functools import partial

import pytest
import torch
from tests.unit.conftest import make_data, make_spec
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

import laptime.optimizations
from laptime.engine import check
from laptime.engine.check import STATISTICS, check_one_step
from laptime.engine.norm_statistics import running_values, statistics_behind, statistics_errors
from laptime.optimizations.layout import channels_last
from laptime.spec import OptimizationSpec
from laptime.workloads.cifar import Cifar

LAYOUT = OptimizationSpec(name="channels-last")
BF16 = OptimizationSpec(name="bf16")
COMPILED = OptimizationSpec(name="compile", options={"backend": "eager"})
LISTS = {"exact": (LAYOUT,), "bf16": (LAYOUT, BF16), "compiled": (LAYOUT, BF16, COMPILED)}


@pytest.fixture(autouse=True)
def afresh():
    """Compiled code is kept by the code that it came from, and nothing watches a net's hooks."""
    torch._dynamo.reset()


def step(norm: nn.Module, *batches: torch.Tensor):
    """The running statistics of a net of one norm behind forward passes."""
    net = nn.Sequential(norm)
    before = running_values(net)
    for batch in batches:
        net(batch)
    return statistics_behind(net, before)


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.randn(8, 3, 4, 4) * torch.tensor([0.1, 1.0, 10.0]).view(1, 3, 1, 1) + 1


def error_of(found, expected):
    (error,) = statistics_errors(found, expected).values()
    return error


@pytest.mark.parametrize("momentum", [0.1, 0.01, None])
@pytest.mark.parametrize("began", [(0.0, 1.0), (3.0, 100.0)])
def test_an_error_is_that_of_the_batch_whatever_the_share_it_counts_by(images, momentum, began):
    def norm():
        made = nn.BatchNorm2d(3, momentum=momentum)
        nn.init.constant_(made.running_mean, began[0])
        nn.init.constant_(made.running_var, began[1])
        return made

    expected = step(norm(), images)
    assert error_of(step(norm(), images), expected) == 0.0
    assert error_of(step(norm(), 1.1 * images), expected) == pytest.approx(0.21, rel=2e-2)
    # Of a mean, in units of what is divided by.
    moved = images.std() / 2
    assert 0.05 < error_of(step(norm(), images + moved), expected) < 0.5


def test_another_momentum_and_a_batch_that_is_counted_twice_are_far_off(images):
    expected = step(nn.BatchNorm2d(3), images)
    assert error_of(step(nn.BatchNorm2d(3, momentum=0.2), images), expected) == pytest.approx(1.0, abs=0.1)
    assert error_of(step(nn.BatchNorm2d(3), images, images), expected) == pytest.approx(0.9, abs=0.1)
    assert error_of(step(nn.BatchNorm2d(3, momentum=0.0), images), expected) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(3).eval(), nn.BatchNorm2d(3, momentum=0.0)])
def test_statistics_that_stand_still_are_compared_too(images, norm):
    other = copy.deepcopy(norm)
    expected = step(norm, images)
    assert error_of(step(copy.deepcopy(other), images), expected) == 0.0
    other.running_var.mul_(20)
    assert error_of(step(other, images), expected) > 0.5


@pytest.mark.parametrize("size", [0.5**0.5, 0.687])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_one_that_is_called_twice_has_two_batches(size, momentum):
    """Their variance of about a half brings the first one back to where one batch would have left it."""
    torch.manual_seed(0)
    batches = size * torch.randn(2, 8, 3, 64)
    expected = step(nn.BatchNorm1d(3, momentum=momentum), *batches)
    assert error_of(step(nn.BatchNorm1d(3, momentum=momentum), *(1.01 * batches)), expected) < 0.05
    assert error_of(step(nn.BatchNorm1d(3, momentum=momentum), *(1.1 * batches)), expected) > 0.15


def test_a_norm_of_nothing_but_zeros_has_no_error_to_speak_of():
    none, rounding = torch.zeros(8, 3, 4, 4), torch.full((8, 3, 4, 4), 1e-12)
    assert error_of(step(nn.BatchNorm2d(3), rounding), step(nn.BatchNorm2d(3), none)) < 1e-6


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm2d(3, track_running_stats=False), nn.LayerNorm(4), nn.InstanceNorm2d(3), nn.GroupNorm(1, 3)]
)
def test_a_norm_that_keeps_none_is_left_out(images, norm):
    assert step(norm, images) == {}


def test_one_that_gets_its_size_with_its_first_batch_is_left_out(images):
    assert step(nn.LazyBatchNorm2d(), images) == {}


def test_a_norm_that_is_not_there_or_has_another_shape_is_infinitely_far_off(images):
    expected = step(nn.BatchNorm2d(3), images)
    assert error_of({}, expected) == math.inf
    assert error_of(step(nn.BatchNorm2d(2), images[:, :2]), expected) == math.inf
    broken = step(nn.BatchNorm2d(3), images * float("nan"))
    assert not error_of(broken, expected) <= 1e9


class Small(nn.Sequential):
    """Four times convolution, BatchNorm and ReLU; images [B, 3, H, W] to [B, classes]."""

    def __init__(self, classes: int) -> None:
        parts = []
        for given in (3, 8, 8, 8):
            parts += [nn.Conv2d(given, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
        super().__init__(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))


NORM = "4"


@pytest.fixture
def small(monkeypatch):
    """Data, with a net of few norms in the workload's place."""
    monkeypatch.setattr(Cifar, "make_model", lambda self, classes, *_: Small(classes))
    return make_data(train=32, size=8)


def spoil(monkeypatch, change):
    """Makes what changes the layout change the norms, too."""

    def changed(recipe, options):
        return change(channels_last(recipe, options))

    listed = tuple((n, changed if n == "channels-last" else f) for n, f in laptime.optimizations.OPTIMIZATIONS)
    monkeypatch.setattr(laptime.optimizations, "OPTIMIZATIONS", listed)


def every(recipe, change):
    for module in recipe.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            change(module)
    return recipe


def one(recipe, change):
    change(recipe.model.get_submodule(NORM))
    return recipe


def momentum(norm):
    norm.momentum = 0.2


def twice(norm):
    """As a forward pass does that is computed again for the backward one."""

    def again(module, given, _):
        values = given[0].detach().float()
        module.running_mean.data.lerp_(values.mean((0, 2, 3)), module.momentum)
        module.running_var.data.lerp_(values.var((0, 2, 3)), module.momentum)

    norm.register_forward_hook(again)


def variance(norm):
    """20 % too large in training, as the batch brings it."""
    before = norm.running_var.clone()

    def larger(module, *_):
        brought = module.running_var.data - (1 - module.momentum) * before
        module.running_var.data.add_(0.2 * brought)

    norm.register_forward_hook(larger)


def mean(norm):
    def none(module, *_):
        module.running_mean.data.zero_()

    norm.register_forward_hook(none)


FAULTS = {
    "momentum": (partial(every, change=momentum), ""),
    "counted twice": (partial(every, change=twice), ""),
    "one variance": (partial(one, change=variance), NORM),
    "one mean": (partial(one, change=mean), NORM),
}


@pytest.mark.parametrize("chosen", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize(("change", "place"), FAULTS.values(), ids=FAULTS)
def test_what_no_gradient_shows_is_refused(small, monkeypatch, chosen, change, place):
    spoil(monkeypatch, change)
    found = check_one_step(make_spec(optimizations=chosen), small, 16)
    assert not found.passed
    # Everything else is right, which is why it was shown before.
    assert found.loss_error <= found.loss_tolerance
    assert found.gradient_error <= found.gradient_tolerance
    assert found.statistics_error > found.statistics_tolerance
    assert place in found.statistics
    assert f"in {found.statistics} (tolerance {found.statistics_tolerance:.2g})" in found.findings()


@pytest.mark.parametrize("chosen", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("batch", [4, 32])
def test_honest_steps_are_right(chosen, batch):
    found = check_one_step(make_spec(optimizations=chosen), make_data(train=32), batch)
    assert found.passed, found
    rounded = chosen != LISTS["exact"]
    assert found.statistics_error < (0.3 if rounded else 1e-3)
    assert found.statistics_tolerance >= STATISTICS["numeric" if rounded else "exact"]


def test_a_compiled_step_may_be_as_far_off_as_plain_autocast_makes_it(monkeypatch):
    """Of 4 images ResNet-18's last norms see 4 values each; nothing decides in this comparison's place there."""
    monkeypatch.setattr(check, "STATISTICS", {**STATISTICS, "numeric": 1e-3})
    asked, data = make_spec(optimizations=LISTS["compiled"]), make_data(train=32)
    found = check_one_step(asked, data, 4)
    assert found.passed, found
    assert found.pieces is None
    assert 1e-3 < found.statistics_error < found.statistics_tolerance < 0.6
    spoil(monkeypatch, FAULTS["momentum"][0])  # in the first norms it is as far off as in the last
    assert not check_one_step(asked, data, 4).passed


def test_a_detector_s_fixed_statistics_are_none():
    """They stand in weights by then, or in buffers that no step moves."""
    assert running_values(nn.Sequential(FrozenBatchNorm2d(3))) == {}


def test_a_record_that_has_none_says_nothing_of_them(small):
    found = check_one_step(make_spec(optimizations=LISTS["exact"]), small, 16)
    older = found.model_copy(update={"statistics": None})
    assert "statistics" in found.findings()
    assert "statistics" not in older.findings()
