"""A peer: the tutorials' loop under Hugging Face's Accelerate, as its quick tour changes it.

python accelerate_script.py STORE --device cpu --epochs 3 [--workload NAME] [--seed N]

Prints one JSON object an epoch: epoch_s, samples, train_loss, and of a classifier train_accuracy, test_accuracy.
"""

from __future__ import annotations

from itertools import islice

from accelerate import Accelerator
from common import loader_of, options, say, seconds, seeded, task_of


def main() -> None:
    """Trains, evaluates and prints; a first net takes the steps that warm the process up."""
    asked = options(__doc__)
    accelerator = Accelerator(cpu=asked.device == "cpu")
    device, task = accelerator.device, task_of(asked)
    plain_loader, order = loader_of(task, asked)
    loader = accelerator.prepare(plain_loader)
    loss_sum, correct = 0.0, 0

    def epoch(steps: int | None = None) -> None:
        nonlocal loss_sum, correct
        model.train()
        loss_sum, correct = 0.0, 0
        for batch in islice(loader, steps):
            optimizer.zero_grad()
            loss, right, count = task.loss(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            loss_sum += loss.item() * count
            if right is not None:
                correct += right.item()

    for steps, epochs in ((task.warm_steps, 1), (None, asked.epochs)):
        plain = task.make_model()
        model, optimizer = accelerator.prepare(plain, task.make_optimizer(plain.parameters()))
        seeded(model, asked.seed)
        for order.epoch in range(epochs):
            epoch_s = seconds(device, lambda: epoch(steps))  # noqa: B023 - called at once
            if steps is None:
                tested = task.tested(model, device)
                hits = {"train_accuracy": correct / len(task.train)} if tested else {}
                say(epoch_s=epoch_s, samples=len(task.train), train_loss=loss_sum / len(task.train), **hits, **tested)


if __name__ == "__main__":
    main()
