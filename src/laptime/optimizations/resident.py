"""Stage data: samples that stand in memory, on a GPU in its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from laptime.data.boxes.tensors import BoxData
from laptime.data.own.alike import check_forms
from laptime.data.own.kept import KeptSplit
from laptime.data.own.opened import OwnData
from laptime.data.tensors import ImageData, Split
from laptime.host.memory import free_memory
from laptime.optimizations.base import Loader, Mark, Options, Recipe, batches, unmarked
from laptime.optimizations.boxes import kept_boxes, needed_bytes
from laptime.optimizations.data import Normalizer, images_of
from laptime.optimizations.placed import placed_shares
from laptime.values.trees import Tree, mapped, sent
from laptime.workloads.base import Batch

MakeLoader = Callable[[Recipe], Loader]

_RESERVED_SHARE = 0.25
# Images that are normalized at once where all of them are: what lies between takes several times their room.
_AT_ONCE = 4096


class ResidentLoader:
    """Whole batches out of one tensor of whole numbers on the run's device, normalized in one pass."""

    def __init__(self, recipe: Recipe) -> None:
        split = images_of(recipe).train
        self.split, self.recipe = Split(split.images.to(recipe.device), split.labels.to(recipe.device)), recipe
        self.normalize = Normalizer(recipe)

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`; batches are on the device already, so they are not copied there."""
        for share in placed_shares(self.recipe, index):
            chosen = share.indices
            yield Batch(self.normalize(self.split.images[chosen]), self.split.labels[chosen], share.weight)
        placed_shares(self.recipe, index + 1)

    def __len__(self) -> int:
        return steps_of(self.recipe)


class NormalizedLoader:
    """Whole batches out of one tensor of normalized images in the run's layout: a step gathers rows, and no more."""

    def __init__(self, recipe: Recipe) -> None:
        split, normalize = images_of(recipe).train, Normalizer(recipe)
        self.recipe, self.labels = recipe, split.labels.to(recipe.device)
        self.rows = torch.empty(len(split.labels), split.images[0].numel(), device=recipe.device)  # [N, values]
        for place, some in enumerate(split.images.split(_AT_ONCE)):
            images = normalize(some.to(recipe.device))
            flat = images.permute(0, 2, 3, 1).flatten(1) if recipe.channels_last else images.flatten(1)
            self.rows[place * _AT_ONCE :][: len(some)] = flat

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`; the images are equal to the last bit to those that are normalized in each step."""
        (height, width), channels = self.recipe.image_size, self.recipe.channels
        for share in placed_shares(self.recipe, index):
            rows = self.rows.index_select(0, share.indices)
            if self.recipe.channels_last:
                images = rows.view(-1, height, width, channels).permute(0, 3, 1, 2)
            else:
                images = rows.view(-1, channels, height, width)
            yield Batch(images, self.labels.index_select(0, share.indices), share.weight)
        placed_shares(self.recipe, index + 1)

    def __len__(self) -> int:
        return steps_of(self.recipe)


class OwnResidentLoader:
    """Whole batches out of a user's own training data, read once and kept on the run's device."""

    def __init__(self, recipe: Recipe) -> None:
        assert isinstance(recipe.data, OwnData)
        self.layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        train = recipe.data.train
        self.whole: Tree = train.whole(recipe.device, self.layout)
        check_forms(train, self.whole)
        self.recipe = recipe

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`; batches are on the device already, so they are not copied there."""
        for share in placed_shares(self.recipe, index):
            chosen = mapped(self.whole, _rows(share.indices))
            yield Batch(sent(chosen, self.recipe.device, self.layout), weight=share.weight)
        placed_shares(self.recipe, index + 1)

    def __len__(self) -> int:
        return steps_of(self.recipe)


def _rows(indices: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor[indices]


def steps_of(recipe: Recipe) -> int:
    """Steps of an epoch."""
    return len(batches(torch.arange(len(recipe.data.train)), recipe.batch_size, recipe.world.size))


def resident(recipe: Recipe, options: Options) -> Recipe:
    """Takes whole batches out of memory.

    On a CPU images are the memory-mapped store, which the page cache holds. On a GPU they are copied there once,
    normalized where that leaves the training its room. A user's own samples are read once, those of the test too where
    there is room; images with boxes are decoded and resized once. Where they leave too little room, the loader stays as
    it is.
    """
    own, on_gpu = not isinstance(recipe.data, ImageData), recipe.device.type == "cuda"
    if not (own or on_gpu):  # the page cache's
        return replace(recipe, make_loader=ResidentLoader)
    # Of a host, whatever else it does, a quarter of what is free stays free.
    free, whole = torch.cuda.mem_get_info(recipe.device) if on_gpu else (free_memory() // recipe.world.here,) * 2
    boxes = isinstance(recipe.data, BoxData)
    needed = needed_bytes(recipe) if boxes else recipe.data.train.nbytes
    if (note := no_room(needed, free, whole)) is not None:
        return replace(recipe, notes=(*recipe.notes, note))
    if boxes:
        return kept_boxes(recipe)
    if isinstance(recipe.data, OwnData):
        return replace(recipe, make_loader=OwnResidentLoader, data=_test_kept(recipe.data, recipe.world.here))
    return replace(recipe, make_loader=image_loader(recipe, free, whole))


def _test_kept(data: OwnData, ranks: int) -> OwnData:
    """The same with each test batch read once, where each of some ranks on this host has room for it, too.

    Outside the counted time items cost as much. Training samples stand on the host as well, or pass it on their way.
    """
    free = free_memory() // ranks
    if no_room(data.train.nbytes + data.test.nbytes, free, free) is not None:
        return data
    return replace(data, test=KeptSplit(data.test.dataset, data.test.collate))


def image_loader(recipe: Recipe, free: int, whole: int) -> MakeLoader:
    """The loader of images that stand on a GPU with `free` of `whole` bytes: normalized once where that fits."""
    normalized_bytes = torch.float32.itemsize * images_of(recipe).train.images.numel()
    return NormalizedLoader if no_room(normalized_bytes, free, whole) is None else ResidentLoader


def no_room(needed: int, free: int, whole: int) -> str | None:
    """Why samples of `needed` bytes stay off a device with `free` of `whole` bytes; None where they fit.

    A quarter of the whole is left to the training.
    """
    if needed <= free - _RESERVED_SHARE * whole:
        return None
    return (
        f"samples stay where they are: {needed / 2**30:.1f} GiB do not fit beside a training into "
        f"{free / 2**30:.1f} GiB of free memory"
    )
