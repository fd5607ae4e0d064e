"""What the peers train of `cifar` and `eurosat`: single images of one size, torchvision's net, cross-entropy, Adam."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.models import efficientnet_b5, resnet18

_NETS = {"cifar": resnet18, "eurosat": efficientnet_b5}
# Steps that warm a process up; one of B5 takes a second.
_WARM_STEPS = {"cifar": 10, "eurosat": 1}


class Images(Dataset):
    """Single images, converted and normalized one by one."""

    def __init__(self, store: Path, split: str) -> None:
        meta = json.loads((store / "meta.json").read_text())
        self.images = np.load(store / f"{split}_images.npy")
        self.labels = np.load(store / f"{split}_labels.npy").tolist()
        self.classes = len(meta["classes"])
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(meta["mean"], meta["std"])])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Classifier:
    """The task, see `common.task_of`."""

    mirrored = page_locked = False
    collate = None

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.warm_steps = asked, _WARM_STEPS[asked.workload]
        self.train = Images(asked.store, "train")
        self.test = Images(asked.store, "test")

    def make_model(self) -> nn.Module:
        """The net with the weights that laptime begins with."""
        torch.manual_seed(self.asked.seed)
        return _NETS[self.asked.workload](num_classes=self.train.classes)

    def make_optimizer(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """That of the tutorials."""
        return torch.optim.Adam(parameters, lr=1e-3)

    def sent(self, batch: Any, device: torch.device) -> Any:
        """A batch on a device."""
        images, labels = batch
        return images.to(device), labels.to(device)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor | None, int]:
        """The mean loss, the right answers and the images of a batch."""
        images, labels = batch
        output = model(images)
        return F.cross_entropy(output, labels), (output.argmax(1) == labels).sum(), len(labels)

    def tested(self, model: nn.Module, device: torch.device) -> dict[str, float]:
        """The share of right answers on the test images."""
        model.eval()
        with torch.no_grad():
            # A generator of its own: an evaluation must not draw what the next epoch's dropout would.
            loader = DataLoader(self.test, batch_size=32, generator=torch.Generator())
            hits = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader)
        model.train()
        return {"test_accuracy": hits / len(self.test)}
