"""Stage data: where the samples are and how they become batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from laptime.data.tensors import Split
from laptime.optimizations.base import Loader, Options, Recipe, permutation, shares
from laptime.workloads.base import Batch
from laptime.world import ALONE, World


class ItemDataset(Dataset[tuple[Tensor, int]]):
    """The map-style dataset of the tutorials: each item is an image that is converted and normalized by itself."""

    def __init__(self, split: Split, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.images = split.images.numpy()
        self.labels = split.labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


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
    """DataLoader over single items, without workers."""

    def __init__(self, recipe: Recipe) -> None:
        data = recipe.data
        self.sampler = EpochBatches(len(data.train.labels), recipe.batch_size, recipe.seed, recipe.world)
        dataset = ItemDataset(data.train, data.mean, data.std)
        self.loader: DataLoader[tuple[Tensor, int]] = DataLoader(dataset, batch_sampler=self.sampler)
        self.device = recipe.device
        self.format = torch.channels_last if recipe.channels_last else torch.contiguous_format

    def epoch(self, index: int) -> Iterator[Batch]:
        self.sampler.epoch = index
        for (images, labels), weight in zip(self.loader, self.sampler.weights(), strict=True):
            yield Batch(images.to(self.device, memory_format=self.format), labels.to(self.device), weight)

    def __len__(self) -> int:
        return len(self.sampler)


class ResidentLoader:
    """Whole batches out of one uint8 tensor, normalized in one pass."""

    def __init__(self, recipe: Recipe) -> None:
        self.split, self.recipe = recipe.data.train, recipe
        self.normalize = Normalizer(recipe)

    def epoch(self, index: int) -> Iterator[Batch]:
        order = permutation(len(self.split.labels), self.recipe.seed, index)
        for share in shares(order, self.recipe.batch_size, self.recipe.world):
            chosen = share.indices
            yield Batch(self.normalize(self.split.images[chosen]), self.split.labels[chosen], share.weight)

    def __len__(self) -> int:
        return len(shares(torch.arange(len(self.split.labels)), self.recipe.batch_size, self.recipe.world))


class Normalizer:
    """uint8 images [B, H, W, 3] to normalized float32 images [B, 3, H, W] in the run's memory format."""

    def __init__(self, recipe: Recipe) -> None:
        height, width = recipe.image_size
        mean, std = torch.tensor(recipe.data.mean), torch.tensor(recipe.data.std)
        # Repeated over the pixels: broadcasting over a last dimension of 3 would not vectorize.
        self.mean, self.std = mean.repeat(height * width), std.repeat(height * width)
        self.shape = (-1, height, width, 3)
        self.channels_last = recipe.channels_last

    def __call__(self, images: Tensor) -> Tensor:
        # The operations of ToTensor and Normalize in their order, so that the images are equal to the last bit.
        flat = images.flatten(1).to(torch.float32).div_(255).sub_(self.mean).div_(self.std)
        nchw = flat.view(self.shape).permute(0, 3, 1, 2)
        return nchw if self.channels_last else nchw.contiguous()


def items(recipe: Recipe) -> Loader:
    """The baseline's loader."""
    return ItemLoader(recipe)


def resident(recipe: Recipe, options: Options) -> Recipe:
    """Takes whole batches out of memory; the images are the memory-mapped store, which the page cache holds."""
    return replace(recipe, make_loader=ResidentLoader)
