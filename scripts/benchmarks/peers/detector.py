"""What the peers train of `detection`: the data set of the tutorials, torchvision's Faster R-CNN, SGD.

The store holds `images/`, `boxes.csv`, `meta.json` and `weights.pt`, the state dict that laptime begins with: a fresh
net with frozen norms needs statistics that are measured first, which no tutorial does.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import FrozenBatchNorm2d

_SIDES = ("xmin", "ymin", "xmax", "ymax")


class Photographs(Dataset):
    """Each item reads the whole CSV again and opens its image from disk, as in the tutorials."""

    def __init__(self, store: Path, names: list[str], classes: list[str]) -> None:
        self.store, self.names = store, names
        self.labels = {name: label for label, name in enumerate(classes, start=1)}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, chosen):
        index, mirrored = chosen
        with (self.store / "boxes.csv").open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.DictReader(file) if line["filename"] == self.names[index] and line["xmin"]]
        with Image.open(self.store / "images" / self.names[index]) as opened:
            pixels = np.array(ImageOps.exif_transpose(opened).convert("RGB"))
        image = torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)
        boxes = torch.tensor([[float(line[side]) for side in _SIDES] for line in lines]).reshape(-1, 4)
        labels = torch.tensor([self.labels[line["class"]] for line in lines], dtype=torch.int64)
        if mirrored:
            image = image.flip(2)
            boxes[:, [0, 2]] = image.shape[2] - boxes[:, [2, 0]]
        return image, {"boxes": boxes, "labels": labels}


def collate(items: list[Any]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Images of any sizes and their boxes, as lists."""
    return [image for image, _ in items], [target for _, target in items]


class Detector:
    """The task, see `common.task_of`."""

    mirrored = page_locked = True
    warm_steps = 1
    collate = staticmethod(collate)

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.meta = asked, json.loads((asked.store / "meta.json").read_text())
        self.train = Photographs(asked.store, self.meta["train"], self.meta["classes"])

    def make_model(self) -> nn.Module:
        """The net with the weights that laptime begins with."""
        backbone = resnet_fpn_backbone(
            backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3
        )
        side = self.meta["side"]
        model = FasterRCNN(backbone, len(self.meta["classes"]) + 1, min_size=side, max_size=round(side * 5 / 3))
        # Of one size there is no choice: torchvision draws a number all the same, and laptime does not.
        model.transform.torch_choice = lambda sizes: sizes[0]
        model.load_state_dict(torch.load(self.asked.store / "weights.pt", weights_only=True))
        return model

    def make_optimizer(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """That of the tutorials, at laptime's rate for fresh weights."""
        return torch.optim.SGD(parameters, lr=1.25e-3, momentum=0.9, weight_decay=5e-4)

    def sent(self, batch: Any, device: torch.device) -> Any:
        """A batch on a device."""
        images, targets = batch
        return [i.to(device) for i in images], [{k: v.to(device) for k, v in t.items()} for t in targets]

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor | None, int]:
        """The sum of the four losses, and the images of a batch; a detector has no right answers."""
        images, targets = batch
        return torch.stack(list(model(images, targets).values())).sum(), None, len(images)

    def tested(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """Nothing: evaluation is outside of the time on all sides."""
        return {}
