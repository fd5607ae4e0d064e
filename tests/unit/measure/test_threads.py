"""Fewer threads beside the run's: which are timed, when none are, and that nothing of the run changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from measure_examples import built, left_alone, ticking

from laptime.measure import threads
from laptime.measure.batches import Limits
from laptime.measure.threads import measure_threads
from laptime.world import World

SHORT = Limits(step_ms=5.0)


@pytest.fixture(autouse=True)
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def taking(monkeypatch, seconds):
    """Passes that take so long, by the threads that torch has then; how many there were, by the same."""
    counts = []

    def timed(self, size, *_):
        counts.append(torch.get_num_threads())
        return seconds[counts[-1]] * size / len(self.given)

    monkeypatch.setattr(threads.Passes, "__call__", timed)
    return counts


@pytest.mark.parametrize("names", [(), ("resident", "no-reads")])
def test_threads_take_turns_and_the_run_is_left_as_it_was(names):
    parts, recipe = built(*names)
    seen, plain = [], parts.forward

    def forward(net, batch):
        seen.append(torch.get_num_threads())
        return plain(net, batch)

    parts.forward = forward
    with left_alone(parts):
        found = measure_threads(parts, recipe, 0, SHORT, ticking(0.01))
    assert [(t.count, t.pass_ms) for t in found] == [(4, pytest.approx(10.0)), (2, pytest.approx(10.0))]
    first, rest = seen[:12], seen[12:]
    assert first == [4] * 4 + [2] * 4 + [1] * 4
    assert rest == ([4] * 4 + [2] * 4) * (len(rest) // 8)
    assert len(rest) >= 8
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    ("seconds", "fewer", "tried"),
    [
        ({4: 0.004, 2: 0.003, 1: 0.002}, (1, 2.0), {4, 2, 1}),
        ({4: 0.004, 2: 0.003, 1: 0.009}, (2, 3.0), {4, 2, 1}),
        ({4: 0.004, 2: 0.0042, 1: 0.003}, (1, 3.0), {4, 2, 1}),
        ({4: 0.004, 2: 0.005, 1: 0.001}, (2, 5.0), {4, 2}),
    ],
)
def test_the_fastest_of_fewer_is_found_as_long_as_fewer_are_no_slower(monkeypatch, seconds, fewer, tried):
    counts = taking(monkeypatch, seconds)
    own, other = measure_threads(*built(), 0, SHORT, ticking(0.01))
    assert (own.count, own.pass_ms) == (4, pytest.approx(4.0))
    assert (other.count, other.pass_ms) == (fewer[0], pytest.approx(fewer[1]))
    assert set(counts) == tried
    assert (len(counts) == 8) == (tried == {4, 2}), "what is clearly slower is not timed twice"


def test_time_ends_the_blocks_and_a_part_of_a_batch_counts_for_all(monkeypatch):
    counts = taking(monkeypatch, {4: 0.25, 2: 0.2, 1: 0.1})
    own, other = measure_threads(*built(micro_batch=2), 0, replace(SHORT, step_ms=1.0, budget_s=0.5), ticking(1.0))
    assert [(t.count, t.pass_ms) for t in (own, other)] == [(4, pytest.approx(250.0)), (2, pytest.approx(200.0))]
    assert counts == ([4] * 4 + [2] * 4) * 2


def test_where_it_would_tell_nothing_nothing_is_timed():
    parts, recipe = built()
    assert measure_threads(parts, replace(recipe, compiled=True), 0, SHORT) == ()
    assert measure_threads(parts, replace(recipe, world=World(rank=0, size=2)), 0, SHORT) == ()
    assert measure_threads(parts, recipe, 0, replace(SHORT, step_ms=None)) == ()
    assert measure_threads(parts, recipe, 0, replace(SHORT, step_ms=300.0)) == ()
    torch.set_num_threads(1)
    assert measure_threads(parts, recipe, 0, SHORT) == ()
