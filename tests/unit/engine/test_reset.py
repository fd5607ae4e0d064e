"""The state after the warm-up: that of a run that had none, whatever the optimizer."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime.engine.build import build, make_recipe
from laptime.engine.loop import train_epoch
from laptime.engine.reset import reset, snapshot
from laptime.optimizations.base import constant
from laptime.optimizations.schedule import one_cycle

# Of the weight and the bias of a layer from 192 values to 3.
SIZES = ((0, (3, 192)), (1, (3,)))


class Counting(torch.optim.SGD):
    """As third parties write them: what it counts stands in its groups, and its state is there from the start."""

    def __init__(self, params, lr):
        super().__init__(params, lr=lr, momentum=0.5)
        for group in self.param_groups:
            group["counted"] = 1.0
            for p in group["params"]:
                self.state[p]["scale"] = torch.ones(())

    def step(self, closure=None):
        for group in self.param_groups:
            group["counted"] *= 0.5
            for p in group["params"]:
                p.grad.mul_(group["counted"] * self.state[p]["scale"])
                self.state[p]["scale"].mul_(0.5)
        return super().step(closure)


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.Adam,
        torch.optim.NAdam,
        torch.optim.Rprop,
        torch.optim.RAdam,
        torch.optim.Adadelta,
        partial(torch.optim.Adagrad, initial_accumulator_value=0.1),
        partial(torch.optim.RMSprop, centered=True, momentum=0.9),
        partial(torch.optim.SGD, momentum=0.9),
        partial(torch.optim.SGD, momentum=0.9, dampening=0.5),
        Counting,
    ],
)
def test_no_trace_of_the_warm_up_is_left(make):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    recipe = replace(make_recipe(make_spec(), make_data(size=8), ()), model=net, make_optimizer=_with(make))
    parts = build(recipe, mark=lambda _: None)
    saved = snapshot(parts)
    first = [float(c.loss_sum) for c in train_epoch(parts, 0)]
    for _ in range(2):
        reset(parts, recipe, saved)
        assert [float(c.loss_sum) for c in train_epoch(parts, 0)] == pytest.approx(first, rel=1e-6)


def test_loaded_moments_are_there_again():
    """A user's optimizer() may load those of a checkpoint; without a warm-up, too, zeroes had stood in their place."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))

    def loaded(model, rate, **_):
        made = torch.optim.Adam(model.parameters(), lr=rate)
        one = {n: {"exp_avg": torch.ones(size), "exp_avg_sq": torch.ones(size)} for n, size in SIZES}
        moments = {n: {"step": torch.tensor(9.0), **both} for n, both in one.items()}
        made.load_state_dict({**made.state_dict(), "state": moments})
        return made

    recipe = replace(make_recipe(make_spec(), make_data(size=8), ()), model=net, make_optimizer=loaded)
    parts = build(recipe, mark=lambda _: None)
    saved = snapshot(parts)
    reset(parts, recipe, saved)
    first = [float(c.loss_sum) for c in train_epoch(parts, 0)]
    assert parts.optimizer.state[net[1].bias]["step"] == 9 + len(first)
    reset(parts, recipe, saved)
    assert parts.optimizer.state[net[1].bias]["exp_avg"].tolist() == [1, 1, 1]
    assert [float(c.loss_sum) for c in train_epoch(parts, 0)] == pytest.approx(first, rel=1e-6)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(("make_schedule", "begin"), [(constant, 1.0), (one_cycle, 1 / 25)])
def test_each_group_keeps_its_rate(on_device, make_schedule, begin):
    """That of the optimizer as it was made, whatever the schedule did since; OneCycle begins at a 25th of the peak."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))

    def two_rates(model, rate, **options):
        weight, bias = model.parameters()
        return torch.optim.Adam([{"params": [weight]}, {"params": [bias], "lr": rate / 10}], lr=rate)

    recipe = replace(
        make_recipe(make_spec(), make_data(size=8), ()),
        model=net,
        make_optimizer=two_rates,
        make_schedule=make_schedule,
        rate_on_device=on_device,
    )
    parts = build(recipe, mark=lambda _: None)
    for _ in range(2):
        reset(parts, recipe, snapshot(parts))
        rates = [float(group["lr"]) for group in parts.optimizer.param_groups]
        assert rates == pytest.approx([begin * recipe.learning_rate, begin * recipe.learning_rate / 10])
        next(train_epoch(parts, 0))


def _with(make):
    return lambda model, rate, **options: make(model.parameters(), lr=rate, **options)
