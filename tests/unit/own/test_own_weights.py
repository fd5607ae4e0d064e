"""Samples that are drawn by weights of the user's own: as by torch's WeightedRandomSampler; and bad weights."""

import re
import sys
from pathlib import Path

import pytest
import torch
from tests.own_files import NORM, PIECES, WEIGHTED, WEIGHTS, own_spec, place, write
from tests.unit.engine.test_resumed_data import train_twice
from tests.unit.own.test_own_pieces import EPOCHS, trained
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from laptime.catalogue.own import place_of
from laptime.data.own.few import few_in_memory
from laptime.data.own.opened import open_own
from laptime.data.own.weights import as_weights, sample_weights
from laptime.engine.build import make_recipe, open_data
from laptime.engine.check import check_one_step
from laptime.errors import LaptimeError, UsageError
from laptime.ladder.request import LadderRequest, fitted_preset
from laptime.optimizations.data import ItemLoader
from laptime.optimizations.order import draws, epoch_order
from laptime.optimizations.placed import placed_shares
from laptime.preflight.inspecting import inspect
from laptime.spec import RunSpec

RETURN = "return 1 + 9 * train.tensors[1]"


def by_hand(module):
    """Two epochs in torch's own words, by its own loader and sampler."""
    own = module.Workload()
    torch.manual_seed(0)
    net, data = own.model(), TensorDataset(module.X[:64], module.Y[:64])
    optimizer = own.optimizer(net.parameters(), 0.1)
    schedule = own.schedule(optimizer, 4, EPOCHS)
    losses, labels = [], []
    for epoch in range(EPOCHS):
        drawing = torch.Generator().manual_seed(epoch)
        sampler = WeightedRandomSampler(1.0 + 9.0 * module.Y[:64], 64, generator=drawing)
        for x, y in DataLoader(data, batch_size=16, sampler=sampler):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), NORM)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            labels.append(y.float().mean().item())
    return losses, labels


@pytest.mark.parametrize("name", ["no-reads", "resident", "graph", "workers", "lightning"])
def test_it_trains_as_by_hand(file, name):
    options = {"count": 1} if name == "workers" else {}
    lap, spec, opened, _ = trained(write(file, PIECES + WEIGHTS), name, options=options)
    losses, labels = by_hand(sys.modules[file.stem])
    assert sum(labels) / len(labels) > 0.75, "where half of the samples have the label"
    assert lap.losses == pytest.approx(losses, rel=1e-4)
    assert check_one_step(spec, opened, 16).passed


def test_a_larger_batch_takes_the_same_draws(file):
    name = write(file, PIECES + WEIGHTS)
    lap, *_, recipe = trained(name, "large-batch", options={"size": 32})
    assert (len(lap.losses), recipe.batch_size) == (4, 32)
    order = torch.cat([share.indices for share in placed_shares(recipe, 1)])
    assert order.tolist() == draws(recipe.data.train.weights, 0, 1).tolist()


def test_draws_depend_on_seed_and_epoch_alone():
    weights = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert draws(weights, 3, 1).equal(draws(weights, 3, 1))
    found = [draws(weights, *of) for of in ((3, 1), (3, 2), (4, 1), (2**64 - 1, 1), (-7, 1))]
    assert len({tuple(order.tolist()) for order in found}) == len(found)


def test_classes_are_drawn_by_their_weights():
    """Each share of three is within 5.2 standard deviations, beyond which 2 in ten million are; so 6 of all three."""
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate((29_000, 900, 100))])
    weights = as_weights((1 / labels.bincount())[labels] * torch.tensor([1.0, 2.0, 1.0])[labels])
    shares = labels[draws(weights, 0, 0)].bincount() / len(labels)
    for share, expected in zip(shares.tolist(), (0.25, 0.5, 0.25), strict=True):
        assert abs(share - expected) < 5.2 * (expected * (1 - expected) / len(labels)) ** 0.5


def test_what_has_the_weight_0_is_never_drawn():
    weights = torch.tensor([0.0, 1.0, 0.0, 3.0] * 50, dtype=torch.float64)
    assert {int(i) % 4 for epoch in range(20) for i in draws(weights, 0, epoch)} == {1, 3}


NUMBERED = ("TensorDataset(X[:64], Y[:64])", "TensorDataset(torch.arange(64), torch.arange(64))")


def test_a_limit_cuts_the_weights_with_the_samples(file):
    data = open_own(*place_of(write(file, WEIGHTED, NUMBERED)), limits=(20, None))
    kept = [int(item[0]) for item in data.train.dataset]
    assert len(set(kept)) == 20
    assert data.train.weights.tolist() == [1.0 + 9 * number for number in kept]
    assert data.test.weights is None, "evaluation goes through each sample once"


def test_a_limit_that_keeps_none_that_is_drawn_is_told(file):
    name = write(file, WEIGHTED, (RETURN, "return [1.0] + [0.0] * 63"))
    data = inspect(name)
    spec = RunSpec(workload="own", variant="tried", data=data, batch_size=16, limit_train=4)
    recipe = make_recipe(spec, open_data(spec), ())
    with pytest.raises(UsageError, match="all 4 training samples that --limit-train keeps have the weight 0: give a l"):
        next(ItemLoader(recipe).epoch(0))
    least = data.own.least_limit
    assert not open_own(*place_of(name), limits=(least - 1, None)).train.weights.any()
    assert open_own(*place_of(name), limits=(least, None)).train.weights.any()
    with pytest.raises(UsageError, match=f"all 4 training .* keeps have the weight 0: give at least {least}"):
        fitted_preset(LadderRequest(workload=name, limit_train=4), data)
    assert fitted_preset(LadderRequest(workload=name, limit_train=least), data).limit_train == least
    few = few_in_memory(recipe.data, 4, 16)
    assert next(ItemLoader(make_recipe(spec, few, ())).epoch(0)).inputs[0].shape[0] == 4, "a probe asks for no weights"


@pytest.mark.parametrize(
    ("given", "found", "remedy"),
    [
        ("[1.0] * 63", "weights of shape (63,) for 64 training samples", "return one number for each, of shape (64,)"),
        ("torch.ones(64, 1)", "weights of shape (64, 1) for 64 training samples", "return one number for each"),
        ("torch.tensor(1.0)", "weights of shape () for 64 training samples", "return one number for each"),
        ("[1.0] * 5 + [-1.0] * 59", "-1 as the weight of training sample 5", "return numbers from 0 on"),
        ("[1.0] * 5 + [float('nan')] * 59", "nan as the weight of training sample 5", "return numbers from 0 on"),
        ("[float('inf')] * 64", "inf as the weight of training sample 0", "return numbers from 0 on"),
        ("torch.zeros(64)", "weights whose sum is 0", "return some that are above 0"),
        ("[1e308] * 64", "weights whose sum is inf", "return some that are above 0, and none so large"),
        ("['much'] * 64", "a list in which not all are numbers", "return one for each of the 64 training samples"),
        ("[1.0, None] * 32", "a list in which not all are numbers", "return one for each"),
        ("[[1.0], [1.0, 2.0]] * 32", "a list in which not all are numbers", "return one for each"),
        ("(1.0 for _ in range(64))", "a generator in which not all are numbers", "return one for each"),
        ("torch.ones(64, device='meta')", "weights on meta", "return them on the CPU, where they draw"),
    ],
)
def test_what_is_no_weight_is_told_with_its_line(file, given, found, remedy):
    name = write(file, WEIGHTED, (RETURN, f"return {given}"))
    line = place(file, "def sample_weights")
    said = f"sample_weights() of {file.name} gave {found} {line}def sample_weights(self, train)): {remedy}"
    with pytest.raises(UsageError, match=re.escape(said)):
        inspect(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((RETURN, "raise ValueError('no classes')"), r"sample_weights\(\) failed: ValueError: no classes"),
        (("def sample_weights(self, train)", "def sample_weights(self)"), r"sample_weights\(\) failed: TypeError"),
        (
            ("    def sample_weights(self, train)", "    @property\n    def sample_weights(self)"),
            "sample_weights of .* failed: NameError",
        ),
    ],
)
def test_weights_that_fail_are_told_with_their_line(file, change, said):
    with pytest.raises(LaptimeError, match=rf"{said}.*\({file.name}, line \d+: "):
        inspect(write(file, WEIGHTED, change))


def test_weights_that_are_no_method_are_told(file):
    name = write(file, WEIGHTED, (WEIGHTS, "\n    sample_weights = [1.0] * 64\n"))
    with pytest.raises(UsageError, match=r"sample_weights of .* is a list: make it a method .*self, train"):
        inspect(name)


class Numbered:
    def __init__(self, count):
        self.count = count

    def sample_weights(self, train):
        return torch.ones(1).expand(self.count)


def test_more_samples_than_torch_draws_from_are_told():
    with pytest.raises(
        UsageError, match=r"weights of 16777217 samples \(.*and torch draws by weights from 16777216 at"
    ):
        sample_weights(Numbered(2**24 + 1), range(2**24 + 1), Path(__file__))


def test_numbers_of_all_kinds_are_weights():
    pandas = pytest.importorskip("pandas")
    column = pandas.Series([1.0, 2.0, 4.0], index=[2, 0, 1])
    parameter = nn.Parameter(torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16))
    for given in ([1, 2, 4], (1.0, 2.0, 4.0), column, column.to_numpy(), parameter, list(torch.tensor([1, 2, 4]))):
        assert as_weights(given).tolist() == [1.0, 2.0, 4.0]
    assert as_weights([True, False]).tolist() == [1.0, 0.0]
    held = torch.ones(3, dtype=torch.float64)
    as_weights(held)[0] = 5
    assert held.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("off", ["\n    sample_weights = None\n", WEIGHTS.replace(RETURN, "return None")])
def test_without_them_each_sample_is_drawn_once(file, off):
    data = inspect(write(file, WEIGHTED, (WEIGHTS, off)))
    assert not data.own.weighted
    weights = open_own(*place_of(f"{file}:Workload")).train.weights
    assert sorted(epoch_order(64, 0, 0, weights).tolist()) == list(range(64))


def test_other_weights_are_other_data(file):
    plain = inspect(write(file, WEIGHTED))
    digests = []
    for other in (RETURN, "return 1 + 8 * train.tensors[1]", "return None"):
        sys.modules.pop(file.stem)
        digests.append(inspect(write(file, WEIGHTED, (RETURN, other))).digest)
    assert plain.own.weighted
    assert (digests[0] == plain.digest, len(set(digests))) == (True, 3)


def test_a_resumed_run_draws_on_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = write(tmp_path / "weighted_resumed.py", WEIGHTED)
    few = {"epochs": 3, "warmup_epochs": 1, "warmup_steps": 1, "check": False, "save_model": True}
    spec = own_spec(inspect(name), "cpu-baseline+resident", **few)
    train_twice(spec, tmp_path, torch.seed)
