"""A peer: the tutorials' loop under Hugging Face's Accelerate, as its quick tour changes it.

python accelerate_script.py STORE --device cpu --epochs 3 [--images N] [--test-images N] [--seed N]

Prints one JSON object an epoch: epoch_s, samples, train_loss, train_accuracy, test_accuracy.
"""

from __future__ import annotations

from itertools import islice

import torch
from accelerate import Accelerator
from common import BATCH, RATE, WARM_STEPS, Images, Order, accuracy, make_model, options, say, seconds
from torch.utils.data import DataLoader


def main() -> None:
    """Trains, evaluates and prints; a first net takes the steps that warm the process up."""
    asked = options(__doc__)
    accelerator = Accelerator(cpu=asked.device == "cpu")
    device = accelerator.device
    train, test = (Images(asked.store, *of) for of in (("train", asked.images), ("test", asked.test_images)))
    order = Order(len(train), asked.seed)
    loader = accelerator.prepare(DataLoader(train, batch_size=BATCH, sampler=order))
    test_loader = DataLoader(test, batch_size=BATCH)
    criterion = torch.nn.CrossEntropyLoss()
    loss_sum, correct = 0.0, 0

    def epoch(steps: int | None = None) -> None:
        nonlocal loss_sum, correct
        model.train()
        loss_sum, correct = 0.0, 0
        for images, labels in islice(loader, steps):
            optimizer.zero_grad()
            output = model(images)
            loss = criterion(output, labels)
            accelerator.backward(loss)
            optimizer.step()
            loss_sum += loss.item() * len(labels)
            correct += (output.argmax(1) == labels).sum().item()

    for steps, epochs in ((WARM_STEPS, 1), (None, asked.epochs)):
        plain = make_model(asked.seed, train.classes)
        model, optimizer = accelerator.prepare(plain, torch.optim.Adam(plain.parameters(), lr=RATE))
        for order.epoch in range(epochs):
            epoch_s = seconds(device, lambda: epoch(steps))  # noqa: B023 - called at once
            if steps is None:
                shown = {"train_loss": loss_sum / len(train), "train_accuracy": correct / len(train)}
                say(epoch_s=epoch_s, samples=len(train), **shown, test_accuracy=accuracy(model, test_loader, device))


if __name__ == "__main__":
    main()
