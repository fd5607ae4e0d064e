"""Nets and trainings that do more than torch's own parts: what changes them leaves them alone, or says so."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from tests.plain_states import load_plain_optimizer_state, load_plain_state, plain_optimizer_state
from tests.unit.optimizations.small_recipes import small_recipe, started
from torch import nn
from torch.nn import functional as F  # noqa: N812

from laptime.engine.build import build
from laptime.engine.evaluate import evaluate
from laptime.engine.loop import train_epoch
from laptime.engine.plain import plain_state
from laptime.engine.reset import reset, snapshot
from laptime.engine.state import put_back, state_of
from laptime.optimizations.dead_taps import dead_taps
from laptime.optimizations.layout import channels_last
from laptime.optimizations.optimizer import adamw, build_optimizer
from laptime.optimizations.products import products
from laptime.optimizations.small_maps import ProductConv2d
from laptime.optimizations.sync_batchnorm import UnsyncedError, synchronized
from laptime.workloads.base import Batch, classify
from laptime.workloads.own import own_optimizer, own_schedule


class Dropped(nn.Conv2d):
    """DropConnect: dropout of the weights."""

    def forward(self, x):
        return self._conv_forward(x, F.dropout(self.weight, 0.5, self.training), self.bias)


def hooked() -> nn.Conv2d:
    conv = nn.Conv2d(8, 8, 3, padding=1)
    conv.register_forward_hook(lambda module, given, output: F.dropout(output, 0.5, module.training))
    return conv


def replaced() -> nn.Conv2d:
    conv = nn.Conv2d(8, 8, 3, padding=1)
    conv.forward = lambda x: F.relu(conv._conv_forward(x, conv.weight, conv.bias))
    return conv


KINDS = {
    "a class of its own": lambda: Dropped(8, 8, 3, padding=1),
    "a hook": hooked,
    "a replaced forward": replaced,
    "a parametrization": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3, padding=1)),
}


def net_with(conv: nn.Module) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), conv, nn.Flatten(), nn.Linear(32, 3)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_more_than_a_convolution_becomes_no_product(kind):
    torch.manual_seed(0)
    recipe = replace(small_recipe("no-reads"), model=net_with(KINDS[kind]()))
    found = products(recipe, {"layers": "all", "largest": 8}).model
    assert not isinstance(found[3], ProductConv2d)
    assert {n for n, _ in found.named_parameters()} == {n for n, _ in recipe.model.named_parameters()}
    plain = replace(recipe, model=net_with(nn.Conv2d(8, 8, 3, padding=1)))
    assert isinstance(products(plain, {"layers": "all", "largest": 8}).model[3], ProductConv2d)


def test_a_gradient_through_a_product_s_gradient_is_an_error_not_a_wrong_number():
    recipe = replace(small_recipe("no-reads"), model=net_with(nn.Conv2d(8, 8, 3, padding=1)).double())
    for size, layer in ((2, 3), (8, 0)):
        net = products(recipe, {"layers": "all", "largest": 8}).model
        if not isinstance(net[layer], ProductConv2d):
            continue
        images = torch.randn(4, net[layer].weight.shape[1], size, size, dtype=torch.float64, requires_grad=True)
        (found,) = torch.autograd.grad(net[layer](images).square().sum(), images, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            found.square().sum().backward()


class Walked:
    """A schedule that knows nothing of state dicts, and a rate that goes down by a share each time."""

    def __init__(self, optimizer, steps):
        self.optimizer, self.steps, self.at = optimizer, steps, 0
        self.first = [g["lr"] for g in optimizer.param_groups]

    def step(self):
        self.at += 1
        for group, first in zip(self.optimizer.param_groups, self.first, strict=True):
            group["lr"] = first * (1 - self.at / self.steps)


class Own:
    def __init__(self, schedule, optimizer):
        self.kind, self.made = schedule, optimizer

    def optimizer(self, parameters, lr):
        return self.made(parameters, lr)

    def schedule(self, optimizer, steps_per_epoch, epochs):
        return self.kind(optimizer, steps_per_epoch * epochs)


OPTIMIZERS = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr=lr),
}
SCHEDULES = {
    "cycled momentum": lambda o, n: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=n),
    "no state dict": Walked,
}


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_what_goes_on_after_a_break_is_what_was_never_broken(optimizer, schedule, warm):
    user = Own(SCHEDULES[schedule], OPTIMIZERS[optimizer])
    recipe = replace(
        small_recipe("no-reads", epochs=3),
        learning_rate=0.05,
        make_optimizer=own_optimizer(user),
        make_schedule=own_schedule(user, 3),
    )

    def fresh():
        parts = build(replace(recipe, model=copy.deepcopy(recipe.model)), mark=lambda _: None)
        saved = snapshot(parts)
        if warm:
            train_epoch_of(parts, 0)
        reset(parts, recipe, saved)
        return parts

    def trained(broken):
        parts = fresh()
        for epoch in range(3):
            if broken and epoch == 1:
                file = io.BytesIO()
                torch.save(state_of(parts), file)
                file.seek(0)
                parts = fresh()
                put_back(parts, torch.load(file, weights_only=True), len(parts.loader))
            train_epoch_of(parts, epoch)
        return torch.cat([p.detach().flatten() for p in parts.model.parameters()])

    assert torch.equal(trained(broken=True), trained(broken=False))


def train_epoch_of(parts, epoch):
    for _ in train_epoch(parts, epoch):
        pass


class Grown(nn.Module):
    """Makes a mask when it is first called, and a larger one where it is needed."""

    def __init__(self, net):
        super().__init__()
        self.net = net
        self.register_buffer("mask", None)

    def forward(self, x):
        if self.mask is None or len(self.mask) < x.shape[-1]:
            self.register_buffer("mask", torch.ones(x.shape[-1]))
        return self.net(x * self.mask[: x.shape[-1]])


@pytest.mark.parametrize("names", [("no-reads",), ("ema", "no-reads")])
def test_a_buffer_that_the_first_pass_makes_survives_the_reset(names):
    recipe = small_recipe(*names)
    recipe = replace(recipe, model=Grown(recipe.model))
    parts = build(recipe, mark=lambda _: None)
    saved = snapshot(parts)
    train_epoch_of(parts, 0)
    reset(parts, recipe, saved)
    train_epoch_of(parts, 0)
    evaluate(parts, recipe, recipe.data.test)
    assert torch.isfinite(torch.cat([p.flatten() for p in parts.model.parameters()])).all()


def test_an_average_moves_where_an_epoch_has_fewer_steps_than_it_waits_for():
    recipe = small_recipe("ema", "no-reads", epochs=1, train=32, every=50)
    parts = started(recipe)
    before = [p.detach().clone() for p in parts.average.model.parameters()]
    train_epoch_of(parts, 0)
    moved = [not torch.equal(a, b) for a, b in zip(before, parts.average.model.parameters(), strict=True)]
    assert all(moved)


class Activated(nn.BatchNorm2d):
    """As in timm: the activation is part of the norm."""

    def forward(self, x):
        return F.relu(super().forward(x))


def test_a_norm_that_does_more_is_not_synchronized():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), Activated(4))
    with pytest.raises(UnsyncedError, match="can't stand for 1, a Activated that does more"):
        synchronized(net, torch.device("cpu"))
    hook = nn.Sequential(nn.BatchNorm2d(4))
    hook[0].register_forward_hook(lambda module, given, output: output * 2)
    with pytest.raises(UnsyncedError):
        synchronized(hook, torch.device("cpu"))


def test_a_norm_with_two_names_stays_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        norm = nn.BatchNorm2d(4)
        found = synchronized(nn.ModuleDict({"one": norm, "other": norm}), torch.device("cpu"))
    finally:
        dist.destroy_process_group()
    assert found["one"] is found["other"]
    assert type(found["one"]) is not nn.BatchNorm2d


@pytest.mark.parametrize("fused", [False, True])
def test_a_plain_optimizer_s_state_fits_cropped_kernels_in_channels_last(fused):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Conv2d(8, 8, 5, padding=2),
        nn.Flatten(),
        nn.Linear(32, 3),
    )
    options = {"weight_decay": 0.1, **({"fused": True} if fused else {})}
    recipe = replace(
        small_recipe("no-reads"), model=net, make_optimizer=adamw, optimizer_options=options, learning_rate=0.05
    )
    cropped = channels_last(dead_taps(recipe, {}), {})
    sides = [(model.double(), r) for model, r in ((copy.deepcopy(net), recipe), (cropped.model, cropped))]
    made = [(model, build_optimizer(r, model)) for model, r in sides]
    batch = Batch(torch.randn(5, 3, 8, 8, dtype=torch.float64), torch.randint(0, 3, (5,)))

    def step(model, optimizer):
        loss = classify(model, batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    for _ in range(2):
        losses = [step(*side) for side in made]
    model, optimizer = made[1]
    weights, state = plain_state(model), plain_optimizer_state(model, optimizer)
    load_plain_state(model, weights)
    load_plain_optimizer_state(model, optimizer, state)
    for _ in range(3):
        losses = [step(*side) for side in made]
        assert losses[0] == pytest.approx(losses[1], abs=1e-12)
