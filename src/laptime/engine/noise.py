"""Noise in the form of a workload's data, for trials and estimates that need no data."""

from __future__ import annotations

import torch

from laptime.data.boxes.tensors import BoxData, BoxItem, BoxSplit, Kept, collate
from laptime.data.tensors import ImageData, Split

_CLASSES = 10
_PHOTOGRAPH = (320, 480)


def random_images(size: int, samples: int) -> ImageData:
    """Square images of noise, of ten classes in turn."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (samples, size, size, 3), dtype=torch.uint8, generator=generator)
    labels = torch.arange(samples) % _CLASSES
    split = Split(images, labels)
    names = tuple(str(c) for c in range(_CLASSES))
    return ImageData(train=split, test=split, classes=names, mean=(0.5,) * 3, std=(0.25,) * 3)


def random_boxes(samples: int) -> BoxData:
    """Noise of a photograph's usual size with a box in its middle."""
    generator = torch.Generator().manual_seed(0)
    height, width = _PHOTOGRAPH
    sides = torch.tensor([[width / 4, height / 4, width / 2, height / 2]])
    items = [
        BoxItem(
            (number, height, width, 1),
            torch.rand(3, height, width, generator=generator),
            sides.clone(),
            torch.ones(1, dtype=torch.int64),
        )
        for number in range(samples)
    ]
    split = BoxSplit(Kept(items), collate)
    return BoxData(split, split, ("thing",), _PHOTOGRAPH)
