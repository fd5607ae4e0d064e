"""What items draw in a worker follows from seed, epoch, rank and place in the epoch; states are plain values."""

import io
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from laptime.data.own.opened import OwnData, OwnSplit
from laptime.optimizations.base import Loading
from laptime.optimizations.data import ItemLoader
from laptime.values.draws import SeededItems, draw_apart, drawn, put_back_drawn, seed_all
from laptime.world import World


def three():
    return torch.rand(()).item(), random.random(), np.random.rand()


class Drawing(Dataset):
    """Items that are what they draw; each third one draws once more."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        found = three()
        return torch.tensor(three() if index % 3 == 0 else found)


class Together(Drawing):
    """The same, asked for whole batches."""

    def __getitems__(self, indices):
        return [self[i] for i in reversed(indices)]


@pytest.fixture
def own(recipe, tmp_path):
    split = OwnSplit(Drawing(), torch.stack)
    data = OwnData(SimpleNamespace(), split, split, tmp_path / "own.py")
    return replace(recipe, data=data, batch_size=4)


def epochs(recipe, workers, indices=(0, 1)):
    loader = ItemLoader(replace(recipe, loading=Loading(workers=workers)))
    return torch.stack([batch.inputs for index in indices for batch in loader.epoch(index)])


def test_workers_draw_alike_whichever_they_are_and_whatever_they_drew_before(own):
    found = epochs(own, 2)
    assert len(set(found.flatten().tolist())) == found.numel()
    assert torch.equal(epochs(own, 1), found)
    assert torch.equal(epochs(own, 2, (1,)), found[3:])
    assert torch.equal(epochs(own, 2, (0, 0, 1))[3:], found)
    assert not torch.isin(epochs(replace(own, seed=1), 1), found).any()


def test_ranks_draw_apart(own):
    ranks = [replace(own, world=World(rank=r, size=2)) for r in range(2)]
    first, second = (epochs(r, 1) for r in ranks)
    assert not torch.isin(first, second).any()


def test_in_this_process_the_runs_own_generators_draw(own):
    seed_all(3)
    found = epochs(own, 0)
    seed_all(3)
    assert torch.equal(epochs(own, 0), found)
    assert not torch.equal(epochs(own, 0), found)


def test_a_data_set_that_gives_batches_is_asked_for_them():
    key = (0, 1, 0, 2)
    one, other = SeededItems(Drawing()), SeededItems(Together())
    assert torch.equal(torch.stack(other.__getitems__((key, [1, 2]))), torch.stack(one.__getitems__((key, [1, 2]))))
    assert torch.equal(other.__getitems__((key, [0, 1]))[0], one.__getitems__((key, [1]))[0])


@pytest.mark.parametrize("seed", [0, -1, 2**40])
def test_a_state_travels_as_plain_values(seed):
    seed_all(seed)
    first = (*three(), random.gauss(0, 1), np.random.randn())  # the last two leave half a pair behind
    file = io.BytesIO()
    torch.save(drawn(), file)
    after = (*three(), random.gauss(0, 1), np.random.randn())
    seed_all(seed)
    assert (*three(), random.gauss(0, 1), np.random.randn()) == first
    seed_all(seed + 1)
    file.seek(0)
    put_back_drawn(torch.load(file, weights_only=True))
    assert (*three(), random.gauss(0, 1), np.random.randn()) == after


def test_a_state_of_torch_alone_leaves_the_others():
    seed_all(5)
    state = {"cpu": torch.get_rng_state()}
    first = three()
    seed_all(5)
    random.random()
    put_back_drawn(state)
    found = three()
    assert (found[0], found[2]) == (first[0], first[2])
    assert found[1] != first[1]


def test_each_rank_but_the_first_has_draws_of_its_own_in_each_epoch_whatever_it_drew_before():
    found = []
    for rank, epoch in ((1, 0), (1, 1), (2, 0), (1, 0)):
        draw_apart(7, epoch, rank)
        found.append(three())
    assert found[0] == found[3]
    assert len({number for numbers in found[:3] for number in numbers}) == 9
    seed_all(7)
    first = three()
    seed_all(7)
    draw_apart(7, 0, 0)
    assert three() == first
