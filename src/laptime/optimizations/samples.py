"""Batches outside of the training's loader: for evaluation, for trials, and as shapes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from laptime.data.own.opened import OwnData, OwnSplit
from laptime.data.tensors import ImageData, Split
from laptime.optimizations.base import AnyData, Recipe
from laptime.optimizations.data import Normalizer
from laptime.values.trees import Tree, sent
from laptime.workloads.base import Batch

_META = torch.device("meta")


def in_order(recipe: Recipe, split: Split | OwnSplit, size: int, device: torch.device) -> Iterator[Batch]:
    """This rank's part of a split in the data's own order, in batches of `size` on a device."""
    mine = torch.arange(len(split)).tensor_split(recipe.world.size)[recipe.world.rank]
    if not len(mine):
        return  # more ranks than samples
    if isinstance(split, OwnSplit):
        for some in mine.split(size):
            yield read(recipe, split, some.tolist(), device)
        return
    normalize, chosen = Normalizer(recipe, device), slice(int(mine[0]), int(mine[-1]) + 1)
    for images, labels in zip(split.images[chosen].split(size), split.labels[chosen].split(size), strict=True):
        yield Batch(normalize(images.to(device)), labels.to(device))


def first(recipe: Recipe, split: Split | OwnSplit, count: int, device: torch.device) -> Batch:
    """The first `count` samples of a split."""
    if isinstance(split, OwnSplit):
        return read(recipe, split, range(count), device)
    return Batch(Normalizer(recipe, device)(split.images[:count].to(device)), split.labels[:count].to(device))


def stand_in(recipe: Recipe, count: int, device: torch.device = _META, size: tuple[int, int] | None = None) -> Batch:
    """A batch whose values don't matter: zeros as images, else the first training samples; by default shapes alone.

    Args:
        recipe: what it is for.
        count: samples; fewer where the user's own data has no more.
        device: where it stands.
        size: height and width of images; None for the recipe's.
    """
    if not isinstance(recipe.data, ImageData):
        return read(recipe, recipe.data.train, range(min(count, len(recipe.data.train))), device)
    images = torch.zeros(count, recipe.channels, *(size or recipe.image_size), device=device)
    layout = torch.channels_last if recipe.channels_last and device != _META else torch.contiguous_format
    return Batch(images.to(memory_format=layout), torch.zeros(count, dtype=torch.int64, device=device))


def at_end(recipe: Recipe, count: int, end: int) -> Batch:
    """The first samples (0) or the last (1) of a user's own training data, on the CPU; all where there are fewer."""
    split = recipe.data.train
    assert isinstance(split, OwnSplit)
    some = min(count, len(split))
    begin = end * (len(split) - some)
    return read(recipe, split, range(begin, begin + some), torch.device("cpu"))


def read(recipe: Recipe, split: OwnSplit, indices: Sequence[int], device: torch.device) -> Batch:
    """Items of a user's own as a batch on a device."""
    return laid_out(recipe, split.batch(indices), device)


def laid_out(recipe: Recipe, tree: Tree, device: torch.device) -> Batch:
    """What was read of a user's own data on a device, in the recipe's layout."""
    layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
    return Batch(sent(tree, device, layout))


def ungraded(data: AnyData) -> AbstractContextManager[Any]:
    """Within it nothing is recorded for a backward.

    A net of the user's own may keep what it makes there for its training (a mask for longer sequences), which a tensor
    of inference mode can't be taken for.
    """
    return torch.no_grad() if isinstance(data, OwnData) else torch.inference_mode()
