"""Stage data: what is done to whole training batches, on the device that they are on."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.errors import RunError, UsageError
from laptime.optimizations.base import Augment, Loader, Mark, Options, Recipe, unmarked
from laptime.optimizations.placed import placed_shares
from laptime.workloads.base import Batch

# Apart from the seeds of the permutations, so that no coin follows from the order.
_COIN_SEED = 7_919
# Apart from the seeds of orders and coins, so that no shift follows from either.
_SHIFT_SEED = 6_007


@dataclass(frozen=True)
class Augmented:
    """A loader whose batches go through the recipe's augmentations; the same whatever the loader."""

    inner: Loader
    recipe: Recipe

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader.epoch`."""
        # One copy an epoch: indices that came from the host with each batch would make each step wait for the device.
        held = placed_shares(self.recipe, index)
        for batch, share in zip(self.inner.epoch(index, mark), held, strict=True):
            indices = share.indices
            if len(batch) != len(indices):
                raise RunError(
                    f"a batch holds {len(batch)} samples where the run's order has {len(indices)}: leave out flip, "
                    "crop and progressive-resizing with this loader."
                )
            changed = batch
            for augment in self.recipe.augments:
                changed = augment(changed, indices, index)
            yield changed

    def __len__(self) -> int:
        return len(self.inner)


def flip(recipe: Recipe, options: Options) -> Recipe:
    """Mirrors half of the images in each epoch.

    `alternating` throws one coin for each image and seed and then mirrors the image in every second epoch, so that two
    epochs show each image both ways, where independent coins show half of them the same way twice. Source: Jordan 2024,
    "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv:2404.00498).
    """
    mode, count = options["mode"], len(recipe.data.train)

    @functools.lru_cache(maxsize=1)
    def coins(epoch: int) -> Tensor:
        return throws(count, recipe.seed, epoch).to(recipe.device)

    def mirrored(batch: Batch, indices: Tensor, epoch: int) -> Batch:
        chosen = (coins(0)[indices] ^ bool(epoch % 2)) if mode == "alternating" else coins(epoch)[indices]
        mask = chosen.view(-1, 1, 1, 1)
        return replace(batch, inputs=torch.where(mask, batch.inputs.flip(3), batch.inputs))

    return replace(recipe, augments=(*recipe.augments, mirrored))


def throws(count: int, seed: int, epoch: int) -> Tensor:
    """A coin for each sample [count], made on the CPU from seed and epoch alone."""
    generator = torch.Generator().manual_seed(((seed * 1_000_003 + epoch) * 10_007 + _COIN_SEED) % 2**64)
    return torch.randint(0, 2, (count,), generator=generator).bool()


def crop(recipe: Recipe, options: Options) -> Recipe:
    """Shows each image moved by some pixels at random: it is padded on all sides, and a window of its size is taken.

    Zeros stand for the mean colour, since images are normalized by then. Source: He et al. 2015 (arXiv:1512.03385), who
    take 4 pixels; with reflected ones, Jordan 2024 (arXiv:2404.00498).
    """
    pixels, mode, count = int(options["pixels"]), str(options["mode"]), len(recipe.data.train)
    least = min(recipe.image_size)
    if pixels >= least:
        raise UsageError(f"crop:pixels={pixels} moves an image of {least} pixels away: give less than {least}.")

    @functools.lru_cache(maxsize=1)
    def places(epoch: int) -> Tensor:
        return shifts(count, recipe.seed, epoch, pixels).to(recipe.device)

    def moved(batch: Batch, indices: Tensor, epoch: int) -> Batch:
        return replace(batch, inputs=windows(batch.inputs, places(epoch)[indices], pixels, mode))

    return replace(recipe, augments=(*recipe.augments, moved))


def shifts(count: int, seed: int, epoch: int, pixels: int) -> Tensor:
    """Where each sample's window begins, down and right [count, 2], made on the CPU from seed and epoch alone.

    Returns:
        From 0 to twice the pixels of the padding, int64; an image whose window begins at `pixels` stays as it is.
    """
    generator = torch.Generator().manual_seed(((seed * 1_000_003 + epoch) * 10_007 + _SHIFT_SEED) % 2**64)
    return torch.randint(0, 2 * pixels + 1, (count, 2), generator=generator)


def windows(images: Tensor, places: Tensor, pixels: int, mode: str) -> Tensor:
    """A window of each image [B, C, H, W], padded by some pixels, at its place [B, 2]: all in one gather.

    The memory format stays what it is.
    """
    count, channels, height, width = images.shape
    padded = F.pad(images, [pixels] * 4, "constant" if mode == "zeros" else mode)
    rows = places[:, :1] + torch.arange(height, device=images.device)
    columns = places[:, 1:] + torch.arange(width, device=images.device)
    # Which of its padded image's pixels each one is [B, H W].
    taken = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).flatten(1)
    if images.is_contiguous(memory_format=torch.channels_last):
        found = padded.permute(0, 2, 3, 1).flatten(1, 2).gather(1, taken[:, :, None].expand(-1, -1, channels))
        return found.view(count, height, width, channels).permute(0, 3, 1, 2)
    return padded.flatten(2).gather(2, taken[:, None].expand(-1, channels, -1)).view(images.shape)


def progressive_resizing(recipe: Recipe, options: Options) -> Recipe:
    """Trains the first epochs on smaller images, which then grow to full size; evaluation is at full size always.

    A deep net that halves its maps five times makes little of small images: ResNet-18 at 24 pixels has maps of 6, 3, 2
    and 1 pixels where 32 give 8, 4, 2 and 1, so layer3 and layer4 save nothing, and neither dead taps nor the products
    on them change. Source: fast.ai's DAWNBench entry, Howard 2018; Touvron et al. 2019 (arXiv:1906.06423).
    """
    sizes = growing(recipe.image_size, recipe.epochs, options)
    if sizes[0] == recipe.image_size:
        note = f"images stay at full size: {recipe.epochs} epochs leave none for smaller ones"
        return replace(recipe, notes=(*recipe.notes, note))
    shown = ", ".join(str(h) if h == w else f"{h}x{w}" for h, w in sizes)
    return replace(
        recipe,
        augments=(*recipe.augments, _resized(sizes)),
        epoch_sizes=sizes,
        notes=(*recipe.notes, f"image size by epoch: {shown}"),
    )


def growing(full: tuple[int, int], epochs: int, options: Options) -> tuple[tuple[int, int], ...]:
    """Height and width by epoch: from `smallest` of the full side over the `share` of the epochs, in steps of `step`.

    The share is rounded down, so that the last epoch has full size.
    """
    smallest, share, step = float(options["smallest"]), float(options["share"]), int(options["step"])
    return sides(full, epochs, smallest, share, step)


def sides(full: tuple[int, int], epochs: int, smallest: float, share: float, step: int) -> tuple[tuple[int, int], ...]:
    """Height and width by epoch, see `growing`; `laptime explain --code` prints it."""
    small = int(share * epochs)

    def side(whole: int, epoch: int) -> int:
        wanted = whole * (smallest + (1 - smallest) * epoch / small)
        return min(whole, max(step, int(wanted / step + 0.5) * step))

    grown = tuple((side(full[0], e), side(full[1], e)) for e in range(small))
    return (*grown, *(full,) * (epochs - small))


def _resized(sizes: tuple[tuple[int, int], ...]) -> Augment:
    def resized(batch: Batch, indices: Tensor, epoch: int) -> Batch:
        size = sizes[min(epoch, len(sizes) - 1)]
        if batch.inputs.shape[-2:] == size:
            return batch
        smaller = F.interpolate(batch.inputs, size, mode="bilinear", antialias=True)
        return replace(batch, inputs=smaller)

    return resized
