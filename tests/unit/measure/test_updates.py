"""The optimizer as it is and fused: what is timed, in which order, and that the run's own is left alone."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from laptime.measure import updates
from laptime.measure.updates import can_be_fused, measure_updates

CPU = torch.device("cpu")


def trained(make=torch.optim.Adam, **options):
    """A net after one update, so that its optimizer has state."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    frozen, *others = net.parameters()
    frozen.requires_grad_(requires_grad=False)
    optimizer = make([{"params": [frozen, *others[:1]]}, {"params": others[1:], "lr": 1e-4}], lr=1e-2, **options)
    net(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    return net, optimizer


def ticking():
    """A clock that goes on by a second whenever it is asked."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


@pytest.mark.parametrize(
    ("make", "options"), [(torch.optim.Adam, {"amsgrad": True}), (torch.optim.AdamW, {}), (torch.optim.SGD, {})]
)
def test_both_sides_are_timed_and_the_run_is_left_as_it_was(make, options):
    net, optimizer = trained(make, **options)
    before = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    gradients, random = [p.grad for p in net.parameters()], torch.random.get_rng_state()
    found = measure_updates(optimizer, CPU)
    assert found is not None
    assert found.own_ms > 0
    assert found.fused_ms > 0
    assert all(torch.equal(v, before[0][k]) for k, v in net.state_dict().items())
    assert str(optimizer.state_dict()) == str(before[1])
    assert all(p.grad is g for p, g in zip(net.parameters(), gradients, strict=True))
    assert torch.equal(torch.random.get_rng_state(), random)


def test_the_fused_side_differs_in_its_kernel_alone(monkeypatch):
    _, optimizer = trained(weight_decay=0.1, foreach=True)
    sides = []
    monkeypatch.setattr(updates, "_update_s", lambda side, *_: sides.append(side) or 0.5 / len(sides))
    measure_updates(optimizer, CPU)
    own, fused = sides[:2]
    assert [bool(g["fused"]) for g in (*own.param_groups, *fused.param_groups)] == [False, False, True, True]
    assert [bool(g["foreach"]) for g in (*own.param_groups, *fused.param_groups)] == [True, True, False, False]
    for side in (own, fused):
        assert [g["lr"] for g in side.param_groups] == [1e-2, 1e-4]
        assert {g["weight_decay"] for g in side.param_groups} == {0.1}
        shapes = [[tuple(p.shape) for p in g["params"]] for g in side.param_groups]
        assert shapes == [[(5,)], [(3, 5), (3,)]]  # what is frozen is not updated


def test_the_first_round_does_not_count_and_time_ends_the_rounds(monkeypatch):
    _, optimizer = trained()
    taken = iter([9.0, 9.0, 0.004, 0.001, *[0.006, 0.003] * 9])
    monkeypatch.setattr(updates, "_update_s", lambda *_: next(taken))
    found = measure_updates(optimizer, CPU, ticking(), budget_s=1.5)
    assert found is not None
    assert (found.own_ms, found.fused_ms) == pytest.approx((5.0, 2.0))  # of two rounds
    assert next(taken) == 0.006
    assert len(list(taken)) == 15


def test_where_there_is_nothing_to_compare(monkeypatch):
    _, fused = trained(fused=True)
    _, other = trained(torch.optim.Rprop)

    class Mine(torch.optim.Adam):
        """A user's own: what its constructor takes is not known."""

    _, mine = trained(Mine)
    assert [can_be_fused(o) for o in (fused, other, mine)] == [False, False, False]
    assert [measure_updates(o, CPU) for o in (fused, other, mine)] == [None, None, None]
    _, plain = trained()
    monkeypatch.setattr(updates, "free_bytes", lambda _: 16 * 23 * 4 - 1)  # 23 parameters, eight times over, twice
    assert measure_updates(plain, CPU) is None
    monkeypatch.setattr(updates, "free_bytes", lambda _: 16 * 23 * 4)
    assert measure_updates(plain, CPU) is not None
