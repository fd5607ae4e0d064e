"""All variants of a seed see the same samples in the same order, whatever the loader."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laptime.optimizations.base import batches, permutation


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
def test_resident_batches_equal_item_batches(recipe, batch_size):
    from dataclasses import replace

    from laptime.optimizations.data import ItemLoader, ResidentLoader

    sized = replace(recipe, batch_size=batch_size)
    pairs = list(zip(ItemLoader(sized).epoch(1), ResidentLoader(sized).epoch(1), strict=True))
    assert len(pairs) == len(ItemLoader(sized)) == len(ResidentLoader(sized))
    for one, other in pairs:
        assert one.labels.equal(other.labels)
        assert one.inputs.equal(other.inputs)
        assert one.inputs.is_contiguous()


def test_channels_last_reaches_the_images(recipe):
    from laptime.optimizations.data import ItemLoader, ResidentLoader
    from laptime.optimizations.layout import channels_last

    changed = channels_last(recipe, {})
    for loader in (ItemLoader(changed), ResidentLoader(changed)):
        images = next(iter(loader.epoch(0))).inputs
        assert images.is_contiguous(memory_format=torch.channels_last)
