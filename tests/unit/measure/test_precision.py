"""bf16 beside fp32: what is timed, when nothing is, and that nothing of the run changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from measure_examples import built, left_alone, ticking

from laptime.measure import precision
from laptime.measure.batches import Limits
from laptime.measure.precision import measure_bf16

SHORT = Limits(step_ms=5.0)


@pytest.fixture(autouse=True)
def with_instructions(monkeypatch):
    """As on a CPU that has them; what a net of a few weights takes without is no matter here."""
    monkeypatch.setattr(precision, "emulates_bf16", lambda: False)


@pytest.mark.parametrize("names", [(), ("resident", "channels-last"), ("no-reads", "fused-optimizer")])
def test_both_formats_are_timed_by_turns_and_the_run_is_left_as_it_was(names):
    parts, recipe = built(*names)
    seen, plain = [], parts.forward

    def forward(net, batch):
        seen.append(torch.is_autocast_enabled("cpu"))
        return plain(net, batch)

    parts.forward = forward
    with left_alone(parts):
        found = measure_bf16(parts, recipe, 0, SHORT, ticking(0.01))
    assert (found.own_ms, found.bf16_ms) == pytest.approx((10.0, 10.0))
    assert seen == ([False] * 4 + [True] * 4) * 4


def test_the_first_pass_of_a_block_does_not_count_and_time_ends_the_blocks(monkeypatch):
    taken = iter([9.0, *[0.004] * 3, 9.0, *[0.003] * 3] * 4)
    monkeypatch.setattr(precision.Passes, "__call__", lambda *_: next(taken))
    parts, recipe = built()
    slow = replace(SHORT, step_ms=1.0, budget_s=0.5)
    found = measure_bf16(parts, recipe, 0, slow, ticking(1.0))
    assert (found.own_ms, found.bf16_ms) == (4.0, 3.0)
    assert len(list(taken)) == 16  # two blocks of each, whatever the clock says


def test_where_it_would_tell_nothing_nothing_is_timed(monkeypatch):
    parts, recipe = built()
    assert measure_bf16(parts, replace(recipe, precision="bf16"), 0, SHORT) is None
    assert measure_bf16(parts, replace(recipe, compiled=True), 0, SHORT) is None
    assert measure_bf16(parts, recipe, 0, replace(SHORT, step_ms=None)) is None
    assert measure_bf16(parts, recipe, 0, replace(SHORT, step_ms=300.0)) is None
    monkeypatch.setattr(precision, "emulates_bf16", lambda: True)
    assert measure_bf16(parts, recipe, 0, SHORT) is None


def test_of_a_batch_in_parts_one_is_timed_and_counts_for_all(monkeypatch):
    parts, recipe = built(micro_batch=2)
    sizes = []
    monkeypatch.setattr(precision.Passes, "__call__", lambda _, size, *__: sizes.append(size) or 0.25)
    found = measure_bf16(parts, recipe, 0, SHORT, ticking())
    assert (set(sizes), found.own_ms, found.bf16_ms) == ({2}, 500.0, 500.0)
