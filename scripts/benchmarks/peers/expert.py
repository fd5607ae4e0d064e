"""A peer: the loop that somebody who knows PyTorch well writes by hand, with nothing of laptime in it.

Images live on the device as normalized bf16; channels_last; autocast to bf16; torch.compile (with CUDA graphs in mode
reduce-overhead); fused Adam with OneCycle; nothing is read until an epoch ends. After the ways of cifar10-airbench
(resident data, evaluation on the device, warm-up outside the clock), with the plain ResNet-18 and without augmentation.

python expert.py STORE --device cuda --epochs 3 [--batch-size 2048] [--mode reduce-overhead]

Prints one JSON object an epoch: epoch_s, samples, train_loss, test_accuracy.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torchvision.models import resnet18

_WARM_STEPS, _WARM_CALLS = 6, 3


def load(store: Path, split: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalized images [N, 3, H, W] in bf16 and channels_last, and labels [N], on the device."""
    meta = json.loads((store / "meta.json").read_text())
    raw = torch.from_numpy(np.load(store / f"{split}_images.npy")).to(device)
    labels = torch.from_numpy(np.load(store / f"{split}_labels.npy")).to(device)
    mean, std = (torch.tensor(meta[k], device=device) * 255 for k in ("mean", "std"))
    images = ((raw.float() - mean) / std).to(torch.bfloat16).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=torch.channels_last), labels


class Training:
    """The net, its data on the device and everything that a step needs."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.device = torch.device(asked.device)
        self.images, self.labels = load(asked.store, "train", self.device)
        self.size = min(asked.batch_size, len(self.labels))
        self.steps = math.ceil(len(self.labels) / self.size)
        classes = len(json.loads((asked.store / "meta.json").read_text())["classes"])
        self.model = resnet18(num_classes=classes).to(self.device, memory_format=torch.channels_last)
        self.compiled = asked.mode != "none"
        # Each size of batch has a graph of its own: one for any size would be recorded anew within the clock.
        self.loss = torch.compile(self.loss_of, mode=asked.mode, dynamic=False) if self.compiled else self.loss_of

    def loss_of(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of a batch under autocast."""
        with torch.autocast(self.device.type, torch.bfloat16):
            return F.cross_entropy(self.model(images), labels)

    def epoch(self, optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler) -> torch.Tensor:
        """Trains one epoch; returns the summed loss, still on the device."""
        self.model.train()
        total = torch.zeros((), device=self.device)
        for chosen in torch.randperm(len(self.labels), device=self.device).split(self.size):
            loss = self.loss(self.images[chosen], self.labels[chosen])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            total += loss.detach() * len(chosen)
        return total

    def optimizer(self, epochs: int) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
        """Fused Adam; the peak of OneCycle grows with the root of the batch."""
        peak = 1e-3 * math.sqrt(self.size / 32)
        adam = torch.optim.Adam(self.model.parameters(), lr=peak, fused=True)
        steps = epochs * self.steps + 1
        return adam, torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=peak, total_steps=steps, cycle_momentum=False)

    def warm_up(self) -> None:
        """Compiles, records (at the second call in each shape) and replays; the effect on the weights is undone."""
        initial = {k: v.clone() for k, v in self.model.state_dict().items()}
        epochs = max(_WARM_CALLS if self.compiled else 1, math.ceil(_WARM_STEPS / self.steps))
        trial = self.optimizer(epochs)
        for _ in range(epochs):
            self.epoch(*trial)
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(initial[name])

    def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Share of right answers, in large batches on the device."""
        self.model.eval()
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16):
            found = torch.cat([self.model(part).argmax(1) for part in images.split(2000)])
        return (found == labels).float().mean().item()


def main() -> None:
    """Trains, evaluates and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile; none leaves it out")
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    training = Training(asked)
    test = load(asked.store, "test", training.device)
    training.warm_up()
    optimizer = training.optimizer(asked.epochs)
    for _ in range(asked.epochs):
        wait(training.device)
        begin = time.perf_counter()
        total = training.epoch(*optimizer)
        wait(training.device)
        seconds = time.perf_counter() - begin
        samples = len(training.labels)
        row = {"epoch_s": seconds, "samples": samples, "train_loss": total.item() / samples}
        sys.stdout.write(json.dumps({**row, "test_accuracy": training.accuracy(*test)}) + "\n")
        sys.stdout.flush()


def wait(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
