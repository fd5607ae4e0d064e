"""A peer: the training loop of the PyTorch tutorials, with nothing of laptime in it.

python tutorial.py STORE --device cuda --epochs 3 [--workload NAME] [--seed N]

Prints one JSON object an epoch: epoch_s, samples, train_loss, and of a classifier train_accuracy, test_accuracy.
"""

from __future__ import annotations

from itertools import islice

import torch
from common import loader_of, options, say, seconds, seeded, task_of


def main() -> None:
    """Trains, evaluates and prints; a first net takes the steps that warm the process up."""
    asked = options(__doc__)
    device, task = torch.device(asked.device), task_of(asked)
    loader, order = loader_of(task, asked)
    loss_sum, correct = 0.0, 0

    def epoch(steps: int | None = None) -> None:
        nonlocal loss_sum, correct
        model.train()
        loss_sum, correct = 0.0, 0
        for given in islice(loader, steps):
            batch = task.sent(given, device)
            optimizer.zero_grad()
            loss, right, count = task.loss(model, batch)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * count
            if right is not None:
                correct += right.item()

    for steps, epochs in ((task.warm_steps, 1), (None, asked.epochs)):
        model = seeded(task.make_model().to(device), asked.seed)
        optimizer = task.make_optimizer(model.parameters())
        for order.epoch in range(epochs):
            epoch_s = seconds(device, lambda: epoch(steps))  # noqa: B023 - called at once
            if steps is None:
                tested = task.tested(model, device)
                hits = {"train_accuracy": correct / len(task.train)} if tested else {}
                say(epoch_s=epoch_s, samples=len(task.train), train_loss=loss_sum / len(task.train), **hits, **tested)


if __name__ == "__main__":
    main()
