"""Stage data: where the samples are and how they become batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from laptime.data.tensors import ImageData, Split
from laptime.optimizations.base import Loader, Mark, Options, Recipe, permutation, shares, unmarked
from laptime.optimizations.loader import Ahead, SameStream, SideStream
from laptime.workloads.base import Batch
from laptime.world import ALONE, World

_RESERVED_SHARE = 0.25


class ItemDataset(Dataset[tuple[Tensor, int]]):
    """The map-style dataset of the tutorials: each item is an image that is converted and normalized by itself."""

    def __init__(self, data: ImageData) -> None:
        self.images = data.train.images.numpy()
        self.labels = data.train.labels.tolist()
        to_tensor = transforms.ToTensor() if self.images.dtype == np.uint8 else partial(bands_to_tensor, data.scale)
        self.transform = transforms.Compose([to_tensor, transforms.Normalize(data.mean, data.std)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        item = self.images[index]
        return self.transform(Image.fromarray(item) if item.dtype == np.uint8 else item), self.labels[index]


def bands_to_tensor(scale: int, image: NDArray[np.int16]) -> Tensor:
    """What ToTensor does, for pixels that no image file has: [H, W, bands] to float32 [bands, H, W], from 0 to 1."""
    return torch.from_numpy(image).permute(2, 0, 1).to(torch.float32).contiguous().div_(scale)


class EpochBatches:
    """A batch sampler for DataLoader that follows the run's permutation; each rank takes its part of each batch."""

    def __init__(self, count: int, size: int, seed: int, world: World = ALONE) -> None:
        self.count, self.size, self.seed, self.epoch, self.world = count, size, seed, 0, world

    def __iter__(self) -> Iterator[list[int]]:
        order = permutation(self.count, self.seed, self.epoch)
        return (share.indices.tolist() for share in shares(order, self.size, self.world))

    def weights(self) -> list[float]:
        """What each batch of this rank counts; the same in every epoch."""
        return [share.weight for share in shares(torch.arange(self.count), self.size, self.world)]

    def __len__(self) -> int:
        return len(self.weights())


class ItemLoader:
    """DataLoader over single items, with as many workers as the recipe says.

    Workers hold the images on the host alone, so a process that has begun to use its GPU may fork them.
    """

    def __init__(self, recipe: Recipe) -> None:
        data = recipe.data
        self.sampler = EpochBatches(len(data.train.labels), recipe.batch_size, recipe.seed, recipe.world)
        dataset = ItemDataset(data)
        count = recipe.loading.workers
        with warnings.catch_warnings():
            # More processes than cores are what the tutorials ask for; the comparison shows what they cost.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            self.loader: DataLoader[tuple[Tensor, int]] = DataLoader(
                dataset,
                batch_sampler=self.sampler,
                num_workers=count,
                persistent_workers=count > 0,
                pin_memory=recipe.loading.pinned and torch.cuda.is_available(),
                # Of its own: an epoch draws a number, and what dropout draws must not depend on the loader.
                generator=torch.Generator(),
            )
        self.device = recipe.device
        self.format = torch.channels_last if recipe.channels_last else torch.contiguous_format

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`; on a CPU a change of the memory format is the only copy."""
        self.sampler.epoch = index
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads; a worker runs one thread and none of this process's locks.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            fetched = iter(self.loader)
        if self.loader.num_workers:
            mark("workers")
        copied = self.device.type != "cpu" or self.format is torch.channels_last
        for (images, labels), weight in zip(fetched, self.sampler.weights(), strict=True):
            if copied:
                mark("data")
            batch = Batch(images.to(self.device, memory_format=self.format), labels.to(self.device), weight)
            if copied:
                mark("copy")
            yield batch

    def __len__(self) -> int:
        return len(self.sampler)


class ResidentLoader:
    """Whole batches out of one tensor of whole numbers on the run's device, normalized in one pass."""

    def __init__(self, recipe: Recipe) -> None:
        split = recipe.data.train
        self.split, self.recipe = Split(split.images.to(recipe.device), split.labels.to(recipe.device)), recipe
        self.normalize = Normalizer(recipe)

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`; batches are on the device already, so they are not copied there."""
        # Made on the CPU for every variant alike; one copy an epoch.
        order = permutation(len(self.split.labels), self.recipe.seed, index).to(self.recipe.device)
        for share in shares(order, self.recipe.batch_size, self.recipe.world):
            chosen = share.indices
            yield Batch(self.normalize(self.split.images[chosen]), self.split.labels[chosen], share.weight)

    def __len__(self) -> int:
        return len(shares(torch.arange(len(self.split.labels)), self.recipe.batch_size, self.recipe.world))


class Normalizer:
    """Stored images [B, H, W, C] to normalized float32 images [B, C, H, W] in the run's memory format."""

    def __init__(self, recipe: Recipe, device: torch.device | None = None) -> None:
        height, width = recipe.image_size
        on = device or recipe.device
        mean, std = torch.tensor(recipe.data.mean, device=on), torch.tensor(recipe.data.std, device=on)
        # Repeated over the pixels: broadcasting over a last dimension of 3 would not vectorize.
        self.mean, self.std = mean.repeat(height * width), std.repeat(height * width)
        # A tensor on the device: CUDA multiplies by the rounded reciprocal of a number, which is another last bit.
        self.whole = torch.tensor(float(recipe.data.scale), device=on)
        self.shape = (-1, height, width, recipe.channels)
        self.channels_last = recipe.channels_last

    def __call__(self, images: Tensor) -> Tensor:
        # The operations of ToTensor and Normalize in their order, so that the images are equal to the last bit.
        flat = images.flatten(1).to(torch.float32).div_(self.whole).sub_(self.mean).div_(self.std)
        nchw = flat.view(self.shape).permute(0, 3, 1, 2)
        return nchw if self.channels_last else nchw.contiguous()


def items(recipe: Recipe) -> Loader:
    """The baseline's loader; where batches are page-locked, they come one ahead of the step."""
    if not recipe.loading.pinned:
        return ItemLoader(recipe)
    layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
    lane = (SideStream if recipe.device.type == "cuda" else SameStream)(recipe.device, layout)
    return Ahead(ItemLoader(replace(recipe, device=torch.device("cpu"), channels_last=False)), lane)


def resident(recipe: Recipe, options: Options) -> Recipe:
    """Takes whole batches out of memory.

    On a CPU the images are the memory-mapped store, which the page cache holds. On a GPU they are copied there once;
    where they leave too little room, the loader stays as it is.
    """
    if recipe.device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(recipe.device)
        if (note := no_room(recipe.data.train.images.nbytes, free, whole)) is not None:
            return replace(recipe, notes=(*recipe.notes, note))
    return replace(recipe, make_loader=ResidentLoader)


def no_room(needed: int, free: int, whole: int) -> str | None:
    """Why images of `needed` bytes stay off a device with `free` of `whole` bytes; None where they fit.

    A quarter of the device is left to the training.
    """
    if needed <= free - _RESERVED_SHARE * whole:
        return None
    return (
        f"images stay on the host: {needed / 2**30:.1f} GiB do not fit beside a training into {free / 2**30:.1f} GiB "
        "of free device memory"
    )
