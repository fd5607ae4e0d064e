"""Cropped and whole nets train alike under every optimizer, and their states convert both ways; in float64."""

import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tests.plain_states import load_plain_optimizer_state, load_plain_state, plain_optimizer_state
from tests.unit.conftest import make_data, make_spec
from tests.unit.optimizations.small_recipes import started
from torch import nn

from laptime.engine.build import build, make_recipe
from laptime.engine.loop import train_epoch
from laptime.engine.plain import plain_state, removed_parameters
from laptime.engine.reset import reset, snapshot
from laptime.optimizations.dead_taps import crops, dead_taps
from laptime.optimizations.optimizer import decay, sgd, sgd_nesterov
from laptime.optimizations.precision import bf16
from laptime.optimizations.schedule import onecycle
from laptime.workloads.own import own_optimizer

NESTEROV = partial(sgd_nesterov, options={"lr": 0.05, "momentum": 0.9})
DECAY = partial(decay, options={"amount": 0.3, "norms": False})
MOMENTUM = partial(
    replace, make_optimizer=sgd, optimizer_options={"momentum": 0.8, "dampening": 0.1, "weight_decay": 0.3}
)


def users(make):
    """An optimizer of a user's own, which knows its decay alone."""
    return partial(replace, make_optimizer=own_optimizer(SimpleNamespace(optimizer=make)))


def apart(parameters, lr):
    """The first kernel that is cropped is decayed less than all others, the second not at all."""
    first, second = parameters[6], parameters[9]
    others = [p for p in parameters if p is not first and p is not second]
    return torch.optim.SGD(
        [
            {"params": [second], "weight_decay": 0.0},
            {"params": others},
            {"params": [first], "weight_decay": 0.2, "momentum": 0.5},
        ],
        lr=lr,
        momentum=0.9,
        weight_decay=0.4,
    )


OPTIMIZERS = {
    "adam": (),
    "adamw": (partial(decay, options={"amount": 0.3, "norms": True}),),
    "adamw, norms apart, onecycle": (DECAY, partial(onecycle, options={"factor": 3.0})),
    "sgd, momentum, dampening, decay": (MOMENTUM,),
    "a user's AdamW, which decays by itself": (users(lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr)),),
    "a user's groups": (users(apart),),
    "nesterov": (NESTEROV,),
    "nesterov, decay": (NESTEROV, DECAY, partial(onecycle, options={"factor": 1.0})),
}


def small_net() -> nn.Module:
    """Maps of 8, 4, 2, 1 and 1 pixels, as the last layers of ResNet-18 see them on 32x32 images."""

    def block(inputs: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 6, 3, stride, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU()]

    torch.manual_seed(1)
    layers = [*block(3, 2), *block(6, 2), *block(6, 2), *block(6, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)).double()


def whole_recipe(*changes, **fields):
    data = make_data(size=8)
    recipe = make_recipe(make_spec(epochs=4), data, ())

    def in_double(model, batch):
        return recipe.workload.forward(model, replace(batch, inputs=batch.inputs.double()))

    recipe = replace(recipe, model=small_net(), forward=in_double, **fields)
    for change in changes:
        recipe = change(recipe)
    return recipe


def cropped_recipe(*changes, **fields):
    whole = whole_recipe(*changes, **fields)
    cut = dead_taps(whole, {})
    assert len(crops(cut.model)) == 2
    return cut


def losses(parts, epochs) -> list[float]:
    return [float(c.loss_sum) for epoch in epochs for c in train_epoch(parts, epoch)]


def assert_same_state(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-10, check_dtype=False)


def assert_same_optimizer(found, expected):
    assert found["state"].keys() == expected["state"].keys()
    assert [g["params"] for g in found["param_groups"]] == [g["params"] for g in expected["param_groups"]]
    for index, entry in expected["state"].items():
        assert entry.keys() == found["state"][index].keys()
        for key, value in entry.items():
            if value is not None:
                torch.testing.assert_close(torch.as_tensor(found["state"][index][key]), torch.as_tensor(value))


@pytest.mark.parametrize("changes", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_twelve_steps_of_cropped_and_whole_agree(changes):
    whole, cut = started(whole_recipe(*changes)), started(cropped_recipe(*changes))
    before = plain_state(whole.model)["6.weight"]
    assert losses(cut, range(4)) == pytest.approx(losses(whole, range(4)), abs=1e-10)
    assert_same_state(plain_state(cut.model), plain_state(whole.model))
    assert_same_optimizer(plain_optimizer_state(cut.model, cut.optimizer), whole.optimizer.state_dict())
    moved = not before[..., 0, 0].equal(plain_state(whole.model)["6.weight"][..., 0, 0])
    decays = any(g["weight_decay"] for g in whole.optimizer.param_groups)
    assert moved == decays  # dead taps of the whole net move by weight decay alone


@pytest.mark.parametrize("changes", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_a_training_goes_on_in_the_other_layout(changes):
    whole, cut = started(whole_recipe(*changes)), started(cropped_recipe(*changes))
    losses(whole, range(2))
    for group, other in zip(cut.optimizer.param_groups, whole.optimizer.param_groups, strict=True):
        group["lr"] = other["lr"]
    load_plain_state(cut.model, plain_state(whole.model))
    load_plain_optimizer_state(cut.model, cut.optimizer, whole.optimizer.state_dict())
    assert_same_state(plain_state(cut.model), plain_state(whole.model))
    whole.schedule = cut.schedule = build(whole_recipe(), mark=lambda _: None).schedule
    assert losses(cut, range(2, 4)) == pytest.approx(losses(whole, range(2, 4)), abs=1e-10)
    assert_same_state(plain_state(cut.model), plain_state(whole.model))
    assert_same_optimizer(plain_optimizer_state(cut.model, cut.optimizer), whole.optimizer.state_dict())
    back = started(whole_recipe(*changes))
    load_plain_state(back.model, plain_state(cut.model))
    load_plain_optimizer_state(back.model, back.optimizer, plain_optimizer_state(cut.model, cut.optimizer))
    back.schedule = whole.schedule
    assert losses(back, [4]) == pytest.approx(losses(whole, [4]), abs=1e-10)


FROZEN = {
    "adamw": DECAY,
    "sgd": MOMENTUM,
    "a user's": users(
        lambda parameters, lr: torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=lr, weight_decay=0.3)
    ),
}


@pytest.mark.parametrize("change", FROZEN.values(), ids=FROZEN.keys())
def test_taps_of_frozen_kernels_stay_as_they_were(change):
    frozen = small_net()
    frozen[6].weight.requires_grad_(False)
    whole = started(change(replace(whole_recipe(), model=copy.deepcopy(frozen))))
    cut = started(dead_taps(change(replace(whole_recipe(), model=frozen)), {}))
    assert losses(cut, range(2)) == pytest.approx(losses(whole, range(2)), abs=1e-10)
    found = plain_state(cut.model)
    assert torch.equal(found["6.weight"], frozen[6].weight)
    assert_same_state(found, plain_state(whole.model))
    assert_same_optimizer(plain_optimizer_state(cut.model, cut.optimizer), whole.optimizer.state_dict())


def test_reset_puts_the_factors_back():
    recipe = cropped_recipe(DECAY)
    parts = build(recipe, mark=lambda _: None)
    saved = snapshot(parts)
    reset(parts, recipe, saved)
    first = losses(parts, range(2))
    assert all(float(crop.factor) < 1 for _, crop in crops(parts.model).values())
    reset(parts, recipe, saved)
    assert all(float(crop.factor) == 1 for _, crop in crops(parts.model).values())
    assert losses(parts, range(2)) == first
    assert not any("factor" in key for key in parts.model.state_dict())


def test_compiled_and_cropped_agree_with_the_whole():
    torch._dynamo.reset()
    whole = started(whole_recipe(DECAY))
    compiled = started(cropped_recipe(DECAY, wrappers=(partial(torch.compile, backend="aot_eager"),)))
    assert losses(compiled, range(2)) == pytest.approx(losses(whole, range(2)), abs=1e-10)
    assert_same_state(plain_state(compiled.model), plain_state(whole.model))


def test_bf16_and_cropped_stay_near_the_whole():
    found = {}
    for make in (whole_recipe, cropped_recipe):
        recipe = bf16(replace(make(DECAY), model=make(DECAY).model.float()), {})
        forward = recipe.workload.forward
        parts = started(bf16(replace(recipe, forward=forward), {}))
        found[make] = losses(parts, range(2)), plain_state(parts.model)
    assert found[cropped_recipe][0] == pytest.approx(found[whole_recipe][0], rel=2e-2)
    for name, value in found[whole_recipe][1].items():
        torch.testing.assert_close(found[cropped_recipe][1][name], value, rtol=0, atol=1e-2)


def test_what_was_removed_is_counted():
    assert removed_parameters(started(cropped_recipe()).model) == 6 * 6 * (9 - 4) + 6 * 6 * (9 - 1)
