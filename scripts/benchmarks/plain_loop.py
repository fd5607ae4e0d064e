"""The tutorials' loop with nothing of laptime in it: what its timing is compared with.

python plain_loop.py STORE IMAGES EPOCHS      prints the epochs' seconds as JSON
"""

from __future__ import annotations

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

    def __init__(self, store: Path, count: int) -> None:
        self.images = np.load(store / "train_images.npy", mmap_mode="r")[:count].copy()
        self.labels = np.load(store / "train_labels.npy")[:count].tolist()
        meta = json.loads((store / "meta.json").read_text())
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(meta["mean"], meta["std"])])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def main(store: str, count: str, epochs: str) -> None:
    """Trains and prints; the first ten steps are a warm-up, as in the variant it is compared with."""
    torch.manual_seed(0)
    model = resnet18(num_classes=10)
    loader = DataLoader(Images(Path(store), int(count)), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    def epoch(steps: int | None = None) -> float:
        model.train()
        loss_sum, correct, begin = 0.0, 0, time.perf_counter()
        for number, (images, labels) in enumerate(loader):
            if number == steps:
                break
            optimizer.zero_grad()
            output = model(images)
            loss = criterion(output, labels)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(labels)
            correct += (output.argmax(1) == labels).sum().item()
        return time.perf_counter() - begin

    epoch(10)
    sys.stdout.write(json.dumps([epoch() for _ in range(int(epochs))]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
