"""What the peers of `scripts/bench peers` share: images, their order, options, the clock. Nothing of laptime."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision import transforms
from torchvision.models import resnet18
from turns import wait_for_turn

BATCH, RATE, WARM_STEPS = 32, 1e-3, 10


class Images(Dataset):
    """Single images, converted and normalized one by one."""

    def __init__(self, store: Path, split: str, count: int | None) -> None:
        meta = json.loads((store / "meta.json").read_text())
        self.images = np.load(store / f"{split}_images.npy", mmap_mode="r")[:count].copy()
        self.labels = np.load(store / f"{split}_labels.npy")[:count].tolist()
        self.classes = len(meta["classes"])
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(meta["mean"], meta["std"])])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Order(Sampler):
    """A new order for each epoch, the one that laptime draws, so that final losses can be compared."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed, self.epoch = count, seed, 0

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        for number, index in enumerate(torch.randperm(self.count, generator=generator).tolist()):
            if number % BATCH == 0:
                wait_for_turn(self.epoch, number // BATCH)
            yield index

    def __len__(self) -> int:
        return self.count


def options(about: str) -> argparse.Namespace:
    """The options of a peer."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("store", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int)
    parser.add_argument("--test-images", type=int)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_model(seed: int, classes: int) -> nn.Module:
    """The net with the weights that laptime begins with."""
    torch.manual_seed(seed)
    return resnet18(num_classes=classes)


def seconds(device: torch.device, work: Callable[[], None]) -> float:
    """Seconds of a piece of work, to the end of what it started on a GPU."""
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def accuracy(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """The share of right answers."""
    model.eval()
    with torch.no_grad():
        hits = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader)
    return hits / len(loader.dataset)


def say(**figures: float) -> None:
    """Prints an epoch's figures as a line of JSON."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
