"""Detection: how images with boxes are fetched, kept and shaped."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from laptime.data.boxes.tensors import BoxData, Boxes, BoxItem, Kept, ParsedOnce, ReadAgain, collate, rows
from laptime.errors import UsageError
from laptime.optimizations.augment import throws
from laptime.optimizations.base import Augment, Loading, Mark, Options, Recipe, permutation, shares, unmarked
from laptime.values.trees import mapped
from laptime.workloads.base import Batch
from laptime.workloads.detection import forward_ready

_STRIDE = 32


def mirrored(recipe: Recipe) -> Augment:
    """Mirrors images with their boxes, each by a coin for its sample and epoch; changes the batch in place."""
    count = len(recipe.data.train)

    @functools.lru_cache(maxsize=1)
    def coins(epoch: int) -> list[bool]:
        chosen: list[bool] = throws(count, recipe.seed, epoch).tolist()
        return chosen

    def mirror(batch: Batch, indices: Tensor, epoch: int) -> Batch:
        thrown = coins(epoch)
        for item in rows(batch.inputs):
            if thrown[item.about[0]]:  # not by `indices`, which are on the device: reading them waits for it
                item.image.copy_(item.image.flip(2))
                left, right = item.boxes[:, 0].clone(), item.boxes[:, 2].clone()
                item.boxes[:, 0], item.boxes[:, 2] = item.image.shape[2] - right, item.image.shape[2] - left
        return batch

    return mirror


def boxes_of(recipe: Recipe, name: str) -> BoxData:
    """The recipe's data; raises UsageError where they have no boxes."""
    if not isinstance(recipe.data, BoxData):
        raise UsageError(f"{name} is for the workload detection alone: leave it out for {recipe.workload.name}.")
    return recipe.data


def parsed_once(recipe: Recipe, options: Options) -> Recipe:
    """Reads the CSV of boxes when the data set is made, instead of once for each item."""

    def parsed(given: Boxes) -> Boxes:
        return ParsedOnce(given.folder, given.names, given.classes) if type(given) is ReadAgain else given

    return replace(recipe, data=boxes_of(recipe, "parsed-once").changed(parsed, test=False))


def fixed_shapes(recipe: Recipe, options: Options) -> Recipe:
    """Brings all images to one size, not keeping their proportions, so that a step takes several without padding.

    The learning rate stays: torchvision's 0.02 for 16 images is less for each of them.
    """
    boxes_of(recipe, "fixed-shapes")
    size, aspect = int(options["batch"]), float(options["aspect"])
    model = copy.deepcopy(recipe.model)
    width, height = fix_shape(model, aspect)
    batch = min(size * recipe.copies, len(recipe.data.train))
    note = f"images of {width}x{height}, {batch} a step"
    return replace(recipe, model=model, batch_size=batch, notes=(*recipe.notes, note))


def fix_shape(model: nn.Module, aspect: float) -> tuple[int, int]:
    """Has a detector bring all images to one size, in place; returns its width and height.

    Args:
        model: says the height, by the shorter side of its images.
        aspect: width over height, up to a multiple of what the net halves its maps by.
    """
    transform: Any = model.transform
    height = int(transform.min_size[0])
    width = max(_STRIDE, round(height * aspect / _STRIDE) * _STRIDE)
    transform.fixed_size = (width, height)
    return width, height


def kept_boxes(recipe: Recipe) -> Recipe:
    """Decodes, normalizes and resizes each image once, with the net's own transform, and keeps it in memory.

    Test images too: outside the counted time they cost as much. No room is asked for here; see `needed_bytes`.
    """
    data, transform = boxes_of(recipe, "resident"), recipe.model.transform
    kept = data.changed(lambda given: Kept([ready(transform, given[i]) for i in range(len(given))]))
    return replace(recipe, data=kept, make_loader=BoxResidentLoader, forward=forward_ready, loading=Loading())


def needed_bytes(recipe: Recipe) -> int:
    """Of all images once they are resized, at most."""
    transform: Any = recipe.model.transform
    images = len(recipe.data.train) + len(recipe.data.test)
    return images * 3 * 4 * int(transform.min_size[0]) * int(transform.max_size)


@torch.no_grad()
def ready(transform: Any, item: BoxItem) -> BoxItem:
    """An item as the net's transform (torchvision's GeneralizedRCNNTransform) leaves it."""
    image, target = transform.resize(transform.normalize(item.image), {"boxes": item.boxes})
    about = (item.about[0], image.shape[1], image.shape[2], len(item.boxes))
    return BoxItem(about, image.contiguous(), target["boxes"], item.labels)


class BoxResidentLoader:
    """Batches out of images that stand ready on the run's device."""

    def __init__(self, recipe: Recipe) -> None:
        dataset, device = boxes_of(recipe, "resident").train.dataset, recipe.device
        self.items: list[BoxItem] = [mapped(dataset[i], lambda t: t.to(device)) for i in range(len(dataset))]
        self.layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.recipe = recipe

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`; what is copied is copied on the device."""
        order = permutation(len(self.items), self.recipe.seed, index)
        for share in shares(order, self.recipe.batch_size, self.recipe.world):
            batch = collate([self.items[i] for i in share.indices.tolist()])
            images = batch.images.contiguous(memory_format=self.layout)
            yield Batch(batch._replace(images=images), weight=share.weight)

    def __len__(self) -> int:
        return len(shares(torch.arange(len(self.items)), self.recipe.batch_size, self.recipe.world))
