"""All variants of a seed see the same samples in the same order, whatever the loader."""

import importlib
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laptime.optimizations.augment import Augmented, flip, shifts, throws
from laptime.optimizations.base import batches, permutation
from laptime.optimizations.data import ItemLoader
from laptime.optimizations.layout import channels_last
from laptime.optimizations.resident import NormalizedLoader, ResidentLoader


@given(count=st.integers(1, 200), size=st.integers(1, 64))
def test_batches_hold_every_sample_once_and_leave_no_single_one(count, size):
    order = permutation(count, seed=1, epoch=2)
    cut = batches(order, size)
    assert torch.cat(cut).sort().values.tolist() == list(range(count))
    if len(cut) > 1 and size > 1:
        assert min(map(len, cut)) > 1
    if size == 1:
        assert set(map(len, cut)) == {1}


def test_order_depends_on_seed_and_epoch_alone():
    assert permutation(50, 3, 1).equal(permutation(50, 3, 1))
    assert not permutation(50, 3, 1).equal(permutation(50, 3, 2))
    assert not permutation(50, 3, 1).equal(permutation(50, 4, 1))


@pytest.mark.parametrize("batch_size", [7, 16])
@pytest.mark.parametrize("loader", [ResidentLoader, NormalizedLoader])
def test_resident_batches_equal_item_batches(recipe, batch_size, loader):
    sized = replace(recipe, batch_size=batch_size)
    pairs = list(zip(ItemLoader(sized).epoch(1), loader(sized).epoch(1), strict=True))
    assert len(pairs) == len(ItemLoader(sized)) == len(loader(sized))
    for one, other in pairs:
        assert one.labels.equal(other.labels)
        assert one.inputs.equal(other.inputs)
        assert one.inputs.is_contiguous()


def test_channels_last_reaches_the_images(recipe):
    changed = channels_last(recipe, {})
    expected = next(iter(ItemLoader(recipe).epoch(0))).inputs
    for loader in (ItemLoader(changed), ResidentLoader(changed), NormalizedLoader(changed)):
        images = next(iter(loader.epoch(0))).inputs
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert images.equal(expected)


def test_images_are_normalized_alike_however_many_at_once(recipe, monkeypatch):
    whole = NormalizedLoader(recipe)
    monkeypatch.setattr(importlib.import_module("laptime.optimizations.resident"), "_AT_ONCE", 5)
    assert NormalizedLoader(recipe).rows.equal(whole.rows)


def test_the_next_epoch_s_order_is_made_once_and_before_it_begins(recipe, monkeypatch):
    made = []

    def noted(count, seed, epoch):
        made.append(epoch)
        return permutation(count, seed, epoch)

    monkeypatch.setattr("laptime.optimizations.order.permutation", noted)
    flipped = flip(replace(recipe, seed=4711), {"mode": "random"})  # of no order that is known already
    loader = Augmented(ResidentLoader(flipped), flipped)
    assert [len(b) for b in loader.epoch(0)] == [16, 16, 16]
    assert made == [0, 1]
    next(iter(loader.epoch(1)))
    assert made == [0, 1]


@pytest.mark.parametrize("drawn", [permutation, throws, partial(shifts, pixels=2)])
def test_each_seed_that_torch_takes_has_its_own_order_and_augmentations(drawn):
    """A time of day in microseconds is a usual seed."""
    found = [drawn(50, seed, 1) for seed in (1_764_142_307_123_456, 2**64 - 1, -7, 0)]
    assert len({tuple(values.flatten().tolist()) for values in found}) == 4
