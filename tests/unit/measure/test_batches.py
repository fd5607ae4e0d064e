"""Forward and backward at two batch sizes: which sizes, what a pass is, and that nothing of the run changes."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from measure_examples import built, left_alone, ticking
from torch import Tensor, nn

from laptime.measure import batches
from laptime.measure.batches import Limits, measure_batches, other_size
from laptime.optimizations.base import unmarked
from laptime.records import PassRecord
from laptime.workloads.base import Batch, Output

WIDE = Limits(step_ms=5.0, activations_mib=0.01)


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """A large batch of 16, which data of 64 are enough for."""
    monkeypatch.setattr("laptime.catalogue.LARGE_BATCHES", {"cpu": 16})


def sizes(found):
    return [p.batch_size for p in found]


@pytest.mark.parametrize("names", [(), ("resident", "channels-last"), ("no-reads", "fused-optimizer")])
def test_two_sizes_are_timed_and_the_run_is_left_as_it_was(names):
    parts, recipe = built(*names)
    with left_alone(parts):
        found = measure_batches(parts, recipe, 0, WIDE, ticking())
    assert sizes(found) == [4, 16]
    assert [p.pass_ms for p in found] == pytest.approx([1.0, 1.0])
    assert parts.net.training


def test_a_pass_is_forward_and_backward_of_so_many_samples_with_gradients_written_anew():
    parts, recipe = built()
    seen, plain = [], parts.forward

    def forward(net, batch):
        assert net is parts.net
        assert {p.grad for p in net.parameters()} == {None}
        seen.append(len(batch))
        batch.labels.zero_()  # as a user's loss may do
        assert batch.inputs.abs().sum() > 0
        batch.inputs.zero_()
        return plain(net, batch)

    parts.forward = forward
    rounds = replace(WIDE, budget_s=0.02)
    assert sizes(measure_batches(parts, recipe, 0, rounds, ticking())) == [4, 16]
    assert seen[:3] == [4, 4, 16]
    assert seen[3:] in ([4, 16, 4], [4, 16, 4] * 2)


def test_nested_batches_of_users_are_cut_as_they_are():
    parts, recipe = built("resident")
    given = {"picture": torch.randn(4, 3), "about": (torch.arange(4), torch.tensor(0.5)), "name": "a"}
    net = nn.Linear(3, 1)
    seen = []

    def forward(model, batch):
        seen.append({k: v for k, v in batch.inputs.items() if k != "picture"})
        return Output(model(batch.inputs["picture"]).mean(), None, len(batch))

    class Given:
        def epoch(self, index, mark=unmarked):
            yield Batch(given)

        def __len__(self):
            return 16

    parts = replace(parts, net=net, model=net, loader=Given(), forward=forward)
    assert sizes(measure_batches(parts, recipe, 0, WIDE, ticking())) == [4, 16]
    assert {len(s["about"][0]) for s in seen} == {4, 16}
    assert all(s["about"][1] == 0.5 and s["name"] == "a" for s in seen)
    # Edges of a graph, say: twice as many samples are not twice as many of them.
    given["edges"] = torch.zeros(2, 9)
    assert measure_batches(parts, recipe, 0, WIDE, ticking()) == ()


def test_buffers_and_gradients_are_put_back_where_a_pass_fails():
    parts, recipe = built()
    plain, before = parts.forward, copy.deepcopy(parts.model.state_dict())
    kept = {name: torch.ones_like(p) for name, p in parts.model.named_parameters()}
    for name, p in parts.model.named_parameters():
        p.grad = kept[name]

    def fails(net, batch):
        if len(batch) == 16:
            raise MemoryError
        return plain(net, batch)

    parts.forward = fails
    with pytest.raises(MemoryError):
        measure_batches(parts, recipe, 0, WIDE, ticking())
    assert all(torch.equal(v, before[k]) for k, v in parts.model.state_dict().items())
    assert all(p.grad is kept[name] for name, p in parts.model.named_parameters())


@pytest.mark.parametrize(
    ("size", "largest", "most", "found"),
    [
        (32, 256, 8.0, 256),
        (32, 256, 7.9, 128),
        (32, 256, 1.9, 16),
        (32, 256, 0.4, None),
        (32, 256, -2.0, None),
        (24, 512, 3.0, 64),
        (3, 512, 1.0, None),  # BatchNorm needs more than one sample
    ],
)
def test_the_other_size_is_the_largest_that_time_and_memory_hold(size, largest, most, found):
    assert other_size(size, largest, most) == found


def test_time_and_memory_bound_the_other_size(monkeypatch):
    parts, recipe = built()
    # Passes of 0.2 s: in 2 s four of 4 samples, and 1.2 s are left for two of twice as many, at the most.
    assert sizes(measure_batches(parts, recipe, 0, WIDE, ticking(0.2))) == [4, 8]
    monkeypatch.setattr(batches, "free_bytes", lambda _: 2**20)
    fits_twice = replace(WIDE, activations_mib=0.25)
    assert sizes(measure_batches(parts, recipe, 0, fits_twice, ticking())) == [4, 8]
    # Without a larger one half of the batch tells, too; what is not known is taken for no room.
    for limits in (replace(WIDE, activations_mib=0.5), replace(WIDE, activations_mib=None)):
        assert sizes(measure_batches(parts, recipe, 0, limits, ticking())) == [2, 4]
    assert measure_batches(parts, recipe, 0, WIDE, ticking(0.5)) == ()


def test_another_moment_takes_the_same_sizes_and_a_second_at_the_most():
    parts, recipe = built()
    first = measure_batches(parts, recipe, 0, replace(WIDE, activations_mib=None), ticking())
    assert sizes(first) == [2, 4]
    for before, found in ((first, [2, 4]), (trial(4, 1.0, 8, 2.0), [4, 8]), (trial(4, 1.0, 16, 2.0), [4, 16])):
        assert sizes(measure_batches(parts, recipe, 0, WIDE, ticking(), before)) == found
    # Four at the run's batch and two at the other one end its first round.
    assert measure_batches(parts, recipe, 0, WIDE, ticking(), trial(4, 150.0, 8, 250.0)) == ()
    spent = ticking(0.09)
    assert sizes(measure_batches(parts, recipe, 0, WIDE, spent, trial(4, 90.0, 8, 90.0))) == [4, 8]
    assert spent() < 0.09 * 25  # seven looks a round, after seven


def trial(small, small_ms, large, large_ms):
    return (PassRecord(batch_size=small, pass_ms=small_ms), PassRecord(batch_size=large, pass_ms=large_ms))


def test_where_there_is_nothing_to_time(monkeypatch):
    parts, recipe = built()
    parts.forward = no_pass
    graphed, its_recipe = built("graph", "resident")
    graphed.forward = no_pass
    ranks = replace(recipe.world, size=2)
    nothing = [
        measure_batches(parts, replace(recipe, compiled=True), 0, WIDE),
        measure_batches(parts, replace(recipe, world=ranks), 0, WIDE),
        measure_batches(graphed, its_recipe, 0, WIDE),
        measure_batches(parts, recipe, 0, replace(WIDE, step_ms=None)),
        measure_batches(parts, recipe, 0, replace(WIDE, step_ms=1100.0)),
    ]
    assert nothing == [()] * len(nothing)
    monkeypatch.setattr("laptime.catalogue.LARGE_BATCHES", {"cpu": 4})
    assert measure_batches(parts, recipe, 0, WIDE) == ()


def no_pass(net: nn.Module, batch: Batch) -> Tensor:
    raise AssertionError("nothing is to be run")


def test_of_a_batch_in_parts_no_other_size_is_tried():
    parts, recipe = built(micro_batch=2)
    assert measure_batches(parts, recipe, 0, WIDE, ticking()) == ()
    assert sizes(measure_batches(parts, replace(recipe, micro_batch=4), 0, WIDE, ticking())) == [4, 16]


def taking(monkeypatch, own_s):
    """Passes at the run's batch take what is given, one after another, any other 10 ms; returns those taken."""
    given, taken = iter(own_s), []

    def one(_, size, *__):
        if size != 4:
            return 0.010
        taken.append(next(given))
        return taken[-1]

    monkeypatch.setattr(batches.Passes, "__call__", one)
    return taken


def test_rounds_of_a_slow_moment_do_not_count_where_others_do(monkeypatch):
    parts, recipe = built()
    # Two to warm up, a round whose passes both take longer than a whole step of 5 ms, and three in which one does not.
    taken = taking(monkeypatch, [0.001, 0.001, 0.009, 0.006, *[0.009, 0.004] * 2, *[0.002] * 40])
    found = measure_batches(parts, recipe, 0, WIDE, ticking(0.19))
    assert [p.pass_ms for p in found] == pytest.approx([4.0, 10.0])
    assert len(taken) == 2 + 2 * 4


def test_where_all_is_slow_the_whole_budget_is_taken_and_all_rounds_count(monkeypatch):
    parts, recipe = built()
    taken = taking(monkeypatch, [0.001, 0.001, *[0.009] * 60])
    found = measure_batches(parts, recipe, 0, WIDE, ticking(0.19))
    assert [p.pass_ms for p in found] == pytest.approx([9.0, 10.0])
    assert len(taken) == 2 + 2 * 11  # of 0.19 s in 2 s
