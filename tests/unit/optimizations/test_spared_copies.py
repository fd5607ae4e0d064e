"""A fused update on a CPU without copies of gradients that nobody reads: the same bits, and the same state."""

import copy

import pytest
import torch
from tests.unit.optimizations.small_recipes import small_recipe
from torch import nn
from torch.profiler import ProfilerActivity, profile

from laptime.optimizations.optimizer import build_optimizer, spare_copies

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def net(layouts=LAYOUTS) -> nn.Module:
    torch.manual_seed(0)
    # Under BatchNorm a bias has a gradient of rounding alone, whose sign Adam follows: it would differ by the threads.
    layers = nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.Conv2d(64, 64, 1), nn.Conv2d(64, 8, 3)
    flat = nn.Unflatten(1, (8, 1)), nn.Conv3d(8, 64, (1, 6, 6)), nn.Flatten(), nn.Linear(64, 300)
    found = nn.Sequential(*layers, *flat)
    for p in found.parameters():
        p.data = p.data.to(memory_format=layouts.get(p.dim(), torch.preserve_format))
    return found


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> list[str]:
    """Takes some steps; returns the operators of the last update."""
    torch.manual_seed(1)
    for step in range(steps):
        model(torch.randn(2, 32, 8, 8)).square().mean().backward()
        if step < steps - 1:
            optimizer.step()
            optimizer.zero_grad()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        optimizer.step()
    optimizer.zero_grad()
    return [event.name for event in seen.events()]


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"weight_decay": 0.1, "maximize": True}])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_it_is_the_same_update_to_the_last_bit_and_copies_nothing(kind, options):
    plain, spared = net(), net()
    before = kind(plain.parameters(), lr=0.01, fused=True, **options)
    after = kind(spared.parameters(), lr=0.01, fused=True, **options)
    spare_copies(after)
    # Where this fails, torch copies no more: what is tested here is then no longer of use.
    assert trained(plain, before).count("aten::clone") == 3
    assert trained(spared, after).count("aten::clone") == 1  # of a small one
    for one, other in zip(plain.parameters(), spared.parameters(), strict=True):
        assert torch.equal(one, other)
        for name, value in before.state[one].items():
            kept = after.state[other][name]
            assert torch.equal(kept, value)
            assert (kept.shape, kept.stride()) == (value.shape, value.stride())


def test_a_recipe_s_fused_adam_is_spared_them_and_its_state_goes_on_elsewhere():
    model = net()
    recipe = small_recipe("fused-optimizer")
    optimizer = build_optimizer(recipe, model)
    assert trained(model, optimizer).count("aten::clone") == 1
    other = net()
    other.load_state_dict(model.state_dict())
    plain = torch.optim.Adam(other.parameters(), lr=recipe.learning_rate)
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    plain.param_groups[0]["fused"] = False
    trained(model, optimizer)
    trained(other, plain)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam])
def test_what_is_another_rule_or_another_layout_is_left_alone(kind, fused):
    plain, other = net(layouts={}), net(layouts={})
    before, after = (kind(m.parameters(), lr=0.01, fused=fused) for m in (plain, other))
    spare_copies(after)
    assert trained(plain, before) == trained(other, after)
    for one, two in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
