"""Stage data: where the samples are and how they become batches."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from laptime.data.own.begun import worker_start
from laptime.data.own.opened import OwnData
from laptime.data.own.workers import Staying, Watch
from laptime.data.tensors import ImageData
from laptime.optimizations.augment import Augmented
from laptime.optimizations.base import Loader, Mark, Recipe, shares, unmarked
from laptime.optimizations.loader import Ahead, SameStream, SideStream
from laptime.optimizations.order import epoch_order, weights_of
from laptime.optimizations.selecting import Selecting
from laptime.values.draws import Read, SeededItems
from laptime.values.trees import sent
from laptime.workloads.base import Batch
from laptime.world import ALONE, World

# A worker that is silent for so long waits for a lock or a thread that its process does not have.
_SILENCE_S = 120


class ItemDataset(Dataset[tuple[Tensor, int]]):
    """The map-style dataset of the tutorials: each item is an image that is converted and normalized by itself."""

    def __init__(self, data: ImageData) -> None:
        self.images: Any = data.train.images.numpy()
        self.labels, self.stored = data.train.labels.tolist(), data.train.stored
        to_tensor = transforms.ToTensor() if self.images.dtype == np.uint8 else partial(bands_to_tensor, data.scale)
        self.transform = transforms.Compose([to_tensor, transforms.Normalize(data.mean, data.std)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        item = self.images[index]
        return self.transform(Image.fromarray(item) if item.dtype == np.uint8 else item), self.labels[index]

    def __getstate__(self) -> dict[str, Any]:
        """For a worker that is spawned: it maps a store's file anew, instead of a copy of all pixels for each."""
        return {**vars(self), "images": self.stored or self.images}


def bands_to_tensor(scale: int, image: NDArray[np.int16]) -> Tensor:
    """What ToTensor does, for pixels that no image file has: [H, W, bands] to float32 [bands, H, W], from 0 to 1."""
    return torch.from_numpy(image).permute(2, 0, 1).to(torch.float32).contiguous().div_(scale)


class EpochBatches:
    """A batch sampler for DataLoader that follows the run's order; each rank takes its part of each batch.

    Where `keyed` is set, a batch comes with what seeds it (see `SeededItems`).
    """

    def __init__(self, count: int, size: int, seed: int, world: World = ALONE, drawn_by: Tensor | None = None) -> None:
        self.count, self.size, self.seed, self.epoch, self.world = count, size, seed, 0, world
        self.drawn_by = drawn_by
        self.keyed = self.stopped = False

    def __iter__(self) -> Iterator[Any]:
        order = epoch_order(self.count, self.seed, self.epoch, self.drawn_by)
        asked = itertools.takewhile(lambda _: not self.stopped, shares(order, self.size, self.world))
        chosen = (share.indices.tolist() for share in asked)
        if not self.keyed:
            return chosen
        key = (self.seed % 2**64, self.epoch, self.world.rank)
        return (((*key, place), indices) for place, indices in enumerate(chosen))

    def weights(self) -> list[float]:
        """What each batch of this rank counts; the same in every epoch."""
        return [share.weight for share in shares(torch.arange(self.count), self.size, self.world)]

    def __len__(self) -> int:
        return len(self.weights())


def page_locked(recipe: Recipe) -> bool:
    """Whether DataLoader's batches go to page-locked memory, which a training on the CPU has no use for."""
    asked = recipe.loading.page_locked and recipe.device.type == "cuda"
    # Where the copies are another's, the loader's device is the host; see `items`.
    return asked or (recipe.loading.pinned and torch.cuda.is_available())


class ItemLoader:
    """DataLoader over single items, with as many workers as the recipe says.

    Workers hold the images on the host alone, so a process that has begun to use its GPU may fork them.
    """

    def __init__(self, recipe: Recipe) -> None:
        data = recipe.data
        of = len(data.train), recipe.batch_size, recipe.seed
        self.sampler = EpochBatches(*of, recipe.world, weights_of(data))
        self.own = not isinstance(data, ImageData)
        count = recipe.loading.workers
        items = ItemDataset(data) if isinstance(data, ImageData) else Read(data.train.dataset)
        self.watch = Watch(data, _SILENCE_S) if count and isinstance(data, OwnData) else None
        # In this process the run's own generators draw, which a checkpoint holds.
        self.sampler.keyed = self.watch is not None
        with warnings.catch_warnings():
            # More processes than cores are what the tutorials ask for; the comparison shows what they cost.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            self.loader: DataLoader[Any] = DataLoader(
                SeededItems(Staying(items)) if self.watch else items,
                batch_sampler=self.sampler,
                collate_fn=None if isinstance(data, ImageData) else data.train.collate,
                # Of its own: an epoch draws a number, and what dropout draws must not depend on the loader.
                generator=torch.Generator().manual_seed(recipe.seed),
                timeout=_SILENCE_S if count else 0,
                worker_init_fn=self.watch.init if self.watch else None,
                num_workers=count,
                multiprocessing_context=worker_start() if count else None,
                persistent_workers=count > 0,
                pin_memory=page_locked(recipe),
            )
        self.fetched: Iterator[Any] = iter(())
        self.device = recipe.device
        self.format = torch.channels_last if recipe.channels_last else torch.contiguous_format

    def settle(self) -> None:
        """Waits for batches that workers have under way of an epoch that was left early."""
        self.sampler.stopped = True
        for _ in self.fetched:
            pass

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`; on a CPU a change of the memory format is the only copy."""
        self.sampler.epoch, self.sampler.stopped = index, False
        with warnings.catch_warnings(), self.watch.over_started() if self.watch else nullcontext():
            # Python 3.12 warns of forks beside threads; a worker runs one thread and none of this process's locks.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            fetched = iter(self.loader)
        self.fetched = self.watch.told(fetched) if self.watch else fetched
        if self.loader.num_workers:
            mark("workers")
        copied = self.device.type != "cpu" or self.format is torch.channels_last
        for given, weight in zip(self.fetched, self.sampler.weights(), strict=True):
            if copied:
                mark("data")
            content = sent(given, self.device, self.format)
            batch = Batch(content, weight=weight) if self.own else Batch(content[0], content[1], weight)
            if copied:
                mark("copy")
            yield batch

    def __len__(self) -> int:
        return len(self.sampler)


def innermost(loader: Loader) -> Loader:
    """The loader below augmentations, selections and copies that run ahead."""
    while isinstance(loader, Ahead | Augmented | Selecting):
        loader = loader.inner
    return loader


def settle(loader: Loader) -> None:
    """Waits for what an epoch that was left early still has under way, so that the next one begins as any other."""
    below = innermost(loader)
    if isinstance(below, ItemLoader):
        below.settle()


class Normalizer:
    """Stored images [B, H, W, C] to normalized float32 images [B, C, H, W] in the run's memory format."""

    def __init__(self, recipe: Recipe, device: torch.device | None = None) -> None:
        height, width = recipe.image_size
        on = device or recipe.device
        data = images_of(recipe)
        mean, std = torch.tensor(data.mean, device=on), torch.tensor(data.std, device=on)
        # Repeated over the pixels: broadcasting over a last dimension of 3 would not vectorize.
        self.mean, self.std = mean.repeat(height * width), std.repeat(height * width)
        # A tensor on the device: CUDA multiplies by the rounded reciprocal of a number, which is another last bit.
        self.whole = torch.tensor(float(data.scale), device=on)
        self.shape = (-1, height, width, recipe.channels)
        self.channels_last = recipe.channels_last

    def __call__(self, images: Tensor) -> Tensor:
        # The operations of ToTensor and Normalize in their order, so that the images are equal to the last bit.
        flat = images.flatten(1).to(torch.float32).div_(self.whole).sub_(self.mean).div_(self.std)
        nchw = flat.view(self.shape).permute(0, 3, 1, 2)
        return nchw if self.channels_last else nchw.contiguous()


def items(recipe: Recipe) -> Loader:
    """The baseline's loader; `pinned` has its batches come one ahead of the step."""
    if not recipe.loading.pinned:
        return ItemLoader(recipe)
    layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
    lane = (SideStream if recipe.device.type == "cuda" else SameStream)(recipe.device, layout)
    return Ahead(ItemLoader(replace(recipe, device=torch.device("cpu"), channels_last=False)), lane)


def images_of(recipe: Recipe) -> ImageData:
    """The recipe's data, for what works on images of our own alone."""
    assert isinstance(recipe.data, ImageData)
    return recipe.data
