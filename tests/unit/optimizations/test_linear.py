"""The linear schedule: its values by hand, alone and with a larger batch, and who takes whose place."""

from dataclasses import replace

import pytest
import torch
from tests.unit.optimizations.small_recipes import small_recipe, started

from laptime.catalogue import combine
from laptime.engine.loop import train_epoch
from laptime.optimizations.schedule import share_of_peak
from laptime.spec import OptimizationSpec
from laptime.variants import resolve


@pytest.mark.parametrize(
    ("steps", "warmup", "shares"),
    [
        (5, 0.4, [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),
        (4, 0.0, [1, 3 / 4, 2 / 4, 1 / 4]),
        (10, 0.2, [1 / 3, 2 / 3, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (1, 0.5, [1]),
        (2, 0.9, [1 / 2, 1]),
    ],
)
def test_the_rate_rises_and_falls_in_two_lines(steps, warmup, shares):
    assert [share_of_peak(step, steps, warmup) for step in range(steps)] == pytest.approx(shares)
    assert share_of_peak(steps, steps, warmup) == 0  # prepared by the last step, and not used


def rates(parts, epochs=2):
    """The rates that the steps take, of each group."""
    taken = []

    def note(optimizer, *_):
        taken.append([float(group["lr"]) for group in optimizer.param_groups])

    parts.optimizer.register_step_pre_hook(note)
    for epoch in range(epochs):
        list(train_epoch(parts, epoch))
    return taken


def test_each_group_follows_it_from_its_own_rate():
    def two_rates(model, rate, **options):
        first, *rest = model.parameters()
        return torch.optim.Adam([{"params": [first], "lr": rate / 10}, {"params": rest}], lr=rate)

    recipe = replace(small_recipe("linear-decay", warmup=0.5, factor=2.0), make_optimizer=two_rates)
    shares = [1 / 4, 2 / 4, 3 / 4, 1, 2 / 3, 1 / 3]
    found = rates(started(recipe))
    assert [slow for slow, _ in found] == pytest.approx([2e-4 * share for share in shares])
    assert [fast for _, fast in found] == pytest.approx([2e-3 * share for share in shares])


def test_a_rate_on_the_device_is_the_same_tensor_throughout():
    parts = started(replace(small_recipe("linear-decay"), rate_on_device=True))
    rate = parts.optimizer.param_groups[0]["lr"]
    found = [share for (share,) in rates(parts)]
    assert found == pytest.approx([1e-3 * share for share in (1 / 2, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5)])
    assert parts.optimizer.param_groups[0]["lr"] is rate


def test_a_larger_batch_takes_it_as_its_schedule():
    found = rates(started(small_recipe("large-batch", size=24, schedule="linear", max_lr=0.02)))
    assert [rate for (rate,) in found] == pytest.approx([0.02 * share for share in (1, 3 / 4, 2 / 4, 1 / 4)])


def test_one_schedule_takes_the_other_one_s_place():
    linear, cycle = OptimizationSpec(name="linear-decay"), OptimizationSpec(name="onecycle")
    assert combine((cycle,), linear) == (linear,)
    assert combine((linear,), cycle) == (cycle,)
    chosen = resolve("cpu-optimized+linear-decay").optimizations
    assert {"large-batch", "linear-decay"} <= {o.name for o in chosen}
    found = rates(started(small_recipe("linear-decay", "large-batch", warmup=0.0)), epochs=2)
    assert len({rate for (rate,) in found}) == len(found)
    assert [rate / found[0][0] for (rate,) in found] == pytest.approx([1, 1 / 2])
