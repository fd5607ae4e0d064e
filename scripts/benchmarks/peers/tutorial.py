"""A peer: the training loop of the PyTorch tutorials, with nothing of laptime in it.

python tutorial.py STORE --device cuda --epochs 3 [--images N] [--test-images N]

Prints one JSON object an epoch: epoch_s, samples, train_loss, test_accuracy.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.models import resnet18


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


def main() -> None:
    """Trains, evaluates and prints; the first ten steps warm the device up and do not count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int)
    parser.add_argument("--test-images", type=int)
    asked = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device(asked.device)
    train = Images(asked.store, "train", asked.images)
    model = resnet18(num_classes=train.classes).to(device)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    test_loader = DataLoader(Images(asked.store, "test", asked.test_images), batch_size=32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    def epoch(steps: int | None = None) -> dict[str, float]:
        model.train()
        loss_sum, begin = 0.0, time.perf_counter()
        for number, (images, labels) in enumerate(loader):
            if number == steps:
                break
            images, labels = images.to(device), labels.to(device)  # noqa: PLW2901 - as the tutorials have it
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(labels)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        return {"epoch_s": seconds, "samples": len(train), "train_loss": loss_sum / len(train)}

    def accuracy() -> float:
        model.eval()
        with torch.no_grad():
            hits = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in test_loader)
        return hits / len(test_loader.dataset)

    epoch(10)
    for _ in range(asked.epochs):
        sys.stdout.write(json.dumps({**epoch(), "test_accuracy": accuracy()}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
