"""`scripts/bench ddp`: a world of one step by step, and by whole processes what the machine holds."""

import argparse

import pytest
import torch.distributed as dist
from tests.unit.conftest import make_data, make_data_spec, make_spec
from torch.nn.parallel import DistributedDataParallel

from laptime.catalogue import parse_optimization


@pytest.fixture
def bench(script):
    return script("ddp")


@pytest.fixture
def steps(script):
    return script("ddp_steps")


@pytest.mark.parametrize(("there", "ranks"), [(1, [1]), (2, [1, 2])])
def test_sides_with_more_ranks_than_devices_are_left_out(monkeypatch, capsys, bench, there, ranks):
    monkeypatch.setattr(bench, "fetch_data", lambda *_: make_data_spec(train=50_000, test=10_000))
    monkeypatch.setattr("laptime.ladder.ranks.device_count", lambda _: there)
    found = bench.sides("cuda", 10_000, 3, "auto")
    assert [spec.ranks for _, _, spec in found] == ranks
    assert ("two ranks, tuned: left out. " in capsys.readouterr().err) == (there == 1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_rank_trains_ddp_s_list_without_the_exchange_for_as_many_steps_as_are_timed(monkeypatch, bench, device):
    monkeypatch.setattr("laptime.ladder.ranks.device_count", lambda _: 1)
    asked = argparse.Namespace(device=device, images=1000, batch=128, turns=100)
    spec = bench.one_rank(asked, make_data_spec(train=50_000, test=10_000))
    names = {o.name: o.options for o in spec.optimizations}
    assert not {"ddp", "flat-reduce", "graph"} & set(names)
    assert ("bf16" in names) is (device == "cuda")
    assert names["large-batch"]["size"] == 128
    assert (spec.ranks, spec.limit_train) == (1, 1000)
    assert spec.epochs * (1000 // 128) >= 105


def test_all_sides_take_the_same_steps_and_only_those_in_a_group_are_wrapped(steps):
    chosen = tuple(map(parse_optimization, ("resident", "no-reads")))
    spec = make_spec(optimizations=chosen, batch_size=16, epochs=4)
    with steps.group_of_one("cpu") as group:
        sides = steps.built(spec, make_data(48), group)
        found = steps.measured(sides, 6)
        wrapped = [isinstance(side.parts.net, DistributedDataParallel) for side in sides]
        assert wrapped == [False, False, True, True, False]
        assert [bool(side.recipe.world.grouped) for side in sides] == [False, False, True, True, True]
        (weights, *others) = [[p.detach().flatten() for p in side.parts.model.parameters()] for side in sides]
        for other in others:
            assert all(one.allclose(two, atol=1e-5) for one, two in zip(weights, other, strict=True))
    assert not dist.is_initialized()
    assert {name: len(times) for name, times in found.items()} == {name: 6 for name, _, _ in steps.SIDES}
    shown = steps.table(found)
    assert len(shown) == 2 + len(steps.SIDES)
    assert shown[2].endswith("| 1 |")


def test_sides_that_train_to_other_losses_end_the_bench(steps):
    with steps.group_of_one("cpu") as group:
        sides = steps.built(make_spec(batch_size=16, epochs=4), make_data(48), group)
        for values in sides[3].parts.model.parameters():
            values.data.mul_(1.5)
        with pytest.raises(SystemExit, match=r"ddp:tuned=true, the same trained to a loss of .* not alike"):
            steps.measured(sides, 1)


@pytest.mark.parametrize(("plain", "within"), [(1.019, True), (1.021, False)])
def test_the_median_of_a_turn_s_ratio_decides_and_not_what_the_machine_did(steps, plain, within):
    # The machine is twice as slow in every third turn, for both sides alike, and a tenth of the steps are disturbed.
    without = [0.1 * (1 + (turn % 3 == 0)) for turn in range(400)]
    found = {name: list(without) for name, _, _ in steps.SIDES}
    found[steps.PLAIN] = [plain * t * (1.5 if turn % 10 == 0 else 1.0) for turn, t in enumerate(without)]
    said, good = steps.verdicts(found)
    assert good is within
    assert said[0].endswith("+0.0%, within the 2% allowed.")
    assert ("above" in said[1]) is not within
    over = steps.ratio(found[steps.PLAIN], without)
    assert over.point == pytest.approx(plain)
    assert over.low <= over.point <= over.high
    assert over.n == steps.BLOCKS
