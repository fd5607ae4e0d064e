"""A peer: the tutorials' training as a LightningModule under Lightning's Trainer.

python lightning_script.py STORE --device cpu --epochs 3 [--workload NAME] [--seed N]

Logger, checkpoints, bars and validation are off, since they stand outside of the other peers' epochs too. An epoch
begins and ends with Lightning's own hooks. Prints one JSON object an epoch: epoch_s, samples, train_loss, and of a
classifier train_accuracy, test_accuracy.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from typing import Any

import torch
from common import Order, loader_of, options, say, seeded, task_of
from lightning.pytorch import LightningModule, Trainer


class Net(LightningModule):
    """The net; it prints its epochs, but for those that only warm up."""

    def __init__(self, asked: argparse.Namespace, task: Any, order: Order, warm: bool) -> None:
        super().__init__()
        self.net = task.make_model()
        self.asked, self.task, self.order, self.warm = asked, task, order, warm

    def training_step(self, batch, batch_idx):
        loss, right, count = self.task.loss(self.net, batch)
        shown = {"train_loss": loss}
        if right is not None:
            shown["train_accuracy"] = right / count
        self.log_dict(shown, on_step=False, on_epoch=True, batch_size=count)
        return loss

    def configure_optimizers(self):
        return self.task.make_optimizer(self.parameters())

    def on_train_start(self) -> None:
        seeded(self.net, self.asked.seed)

    def on_train_epoch_start(self) -> None:
        self.order.epoch = self.current_epoch
        self.begin = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        epoch_s = time.perf_counter() - self.begin
        if self.warm:
            return
        told = {name: float(value) for name, value in self.trainer.callback_metrics.items()}
        shown = {name: told[name] for name in ("train_loss", "train_accuracy") if name in told}
        say(epoch_s=epoch_s, samples=len(self.task.train), **shown, **self.task.tested(self.net, self.device))


def main() -> None:
    """Trains, evaluates and prints; a first net takes the steps that warm the process up."""
    asked = options(__doc__)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers")  # nor have the other peers
    task = task_of(asked)
    loader, order = loader_of(task, asked)
    for warm in (True, False):
        trainer = Trainer(
            accelerator=asked.device,
            devices=1,
            max_epochs=1 if warm else asked.epochs,
            limit_train_batches=task.warm_steps if warm else None,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Net(asked, task, order, warm), loader)


if __name__ == "__main__":
    main()
