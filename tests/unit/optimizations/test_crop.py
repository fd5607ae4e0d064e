"""Moved images: each by a few pixels at most, the same for every loader, rank and epoch; and how they are cut out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.unit.optimizations.small_recipes import small_recipe, started

from laptime.optimizations import augment
from laptime.optimizations.augment import shifts, windows
from laptime.optimizations.base import permutation

FILLED = {"zeros": "constant", "reflect": "reflect"}


def one_by_one(images, places, pixels, mode):
    """The windows by numpy, image by image."""
    whole = ((0, 0), (pixels, pixels), (pixels, pixels))
    height, width = images.shape[2:]
    found = []
    for image, (down, right) in zip(images.numpy(), places.tolist(), strict=True):
        padded = np.pad(image, whole, mode=FILLED[mode])
        found.append(torch.from_numpy(padded[:, down : down + height, right : right + width].copy()))
    return torch.stack(found)


@pytest.mark.parametrize("mode", FILLED)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(6, 3, 8, 8), (5, 1, 7, 9), (4, 5, 12, 5)])
def test_windows_are_those_of_a_loop_over_images(shape, layout, mode):
    images = torch.randn(shape, generator=torch.Generator().manual_seed(1)).contiguous(memory_format=layout)
    places = shifts(len(images), 0, 0, 3)
    found = windows(images, places, 3, mode)
    assert found.equal(one_by_one(images, places, 3, mode))
    assert found.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("mode", FILLED)
def test_each_image_of_an_epoch_is_moved_by_its_own_shift(mode):
    plain = started(small_recipe())
    recipe = small_recipe("crop", pixels=2, mode=mode)
    moved = started(recipe)
    seen = set()
    for epoch in range(6):
        order = permutation(len(recipe.data.train), recipe.seed, epoch)
        places = shifts(len(order), recipe.seed, epoch, 2)[order].split(recipe.batch_size)
        pairs = zip(plain.loader.epoch(epoch), moved.loader.epoch(epoch), places, strict=True)
        for before, after, own in pairs:
            assert after.labels.equal(before.labels)
            assert after.inputs.equal(one_by_one(before.inputs, own, 2, mode))
            seen |= {tuple(place) for place in own.tolist()}
    assert seen == {(down, right) for down in range(5) for right in range(5)}


def test_shifts_differ_between_epochs_and_seeds_and_from_the_coins():
    assert shifts(200, 0, 1, 2).equal(shifts(200, 0, 1, 2))
    assert not shifts(200, 0, 1, 2).equal(shifts(200, 0, 2, 2))
    assert not shifts(200, 0, 1, 2).equal(shifts(200, 1, 1, 2))
    assert shifts(200, 0, 1, 1).unique().tolist() == [0, 1, 2]
    assert not (shifts(200, 0, 1, 2)[:, 0] % 2).bool().equal(augment.throws(200, 0, 1))


def test_ranks_see_the_images_of_one_process():
    recipe = small_recipe("crop", "flip", "resident", pixels=3)
    whole = [batch.inputs for batch in started(recipe).loader.epoch(2)]
    worlds = [replace(recipe.world, rank=rank, size=2) for rank in range(2)]
    parts = [[b.inputs for b in started(replace(recipe, world=world)).loader.epoch(2)] for world in worlds]
    for together, first, second in zip(whole, *parts, strict=True):
        assert torch.cat([first, second]).equal(together)


def test_the_shifts_of_an_epoch_are_made_once(monkeypatch):
    made = []

    def counted(count, seed, epoch, pixels):
        made.append(epoch)
        return shifts(count, seed, epoch, pixels)

    monkeypatch.setattr(augment, "shifts", counted)
    parts = started(small_recipe("crop"))
    for epoch in range(2):
        assert len(list(parts.loader.epoch(epoch))) == 3
    assert made == [0, 1]
