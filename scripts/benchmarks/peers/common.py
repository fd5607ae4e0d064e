"""What the peers of `scripts/bench peers` share: options, the order of the samples, the clock. Nothing of laptime."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler
from turns import wait_for_turn


class Order(Sampler):
    """A new order for each epoch, the one that laptime draws, so that final losses can be compared.

    Where images are mirrored, an index comes with its coin: loader processes don't know the epoch.
    """

    def __init__(self, count: int, seed: int, batch: int, mirrored: bool = False) -> None:
        self.count, self.seed, self.batch, self.mirrored, self.epoch = count, seed, batch, mirrored, 0

    def __iter__(self) -> Iterator[Any]:
        drawn = self.seed * 1_000_003 + self.epoch
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(drawn)).tolist()
        coins = torch.randint(0, 2, (self.count,), generator=torch.Generator().manual_seed(drawn * 10_007 + 7_919))
        for number, index in enumerate(order):
            if number % self.batch == 0:
                wait_for_turn(self.epoch, number // self.batch)
            yield (index, bool(coins[index])) if self.mirrored else index

    def __len__(self) -> int:
        return self.count


def options(about: str) -> argparse.Namespace:
    """The options of a peer."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("store", type=Path)
    parser.add_argument("--workload", choices=("cifar", "eurosat", "detection"), default="cifar")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def task_of(asked: argparse.Namespace) -> Any:
    """What is trained: its data, net, optimizer and loss (see `classifier.Classifier` and `detector.Detector`)."""
    if asked.workload == "detection":
        from detector import Detector

        return Detector(asked)
    from classifier import Classifier

    return Classifier(asked)


def loader_of(task: Any, asked: argparse.Namespace) -> tuple[DataLoader, Order]:
    """The loader of the training images, and what orders them."""
    order = Order(len(task.train), asked.seed, asked.batch, task.mirrored)
    loader = DataLoader(
        task.train,
        batch_size=asked.batch,
        sampler=order,
        collate_fn=task.collate,
        num_workers=asked.workers,
        persistent_workers=asked.workers > 0,
        pin_memory=task.page_locked and asked.device == "cuda",
        # Of its own: an epoch draws a number, and what a net draws must be the same on all sides.
        generator=torch.Generator().manual_seed(asked.seed),
    )
    return loader, order


def seeded(model: nn.Module, seed: int) -> nn.Module:
    """A fresh net, behind which all sides draw the same numbers: masks of dropout, samples among proposals."""
    torch.manual_seed(seed)
    return model


def seconds(device: torch.device, work: Callable[[], None]) -> float:
    """Seconds of a piece of work, to the end of what it started on a GPU."""
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def say(**figures: float) -> None:
    """Prints an epoch's figures as a line of JSON."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
