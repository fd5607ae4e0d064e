"""A peer: the tutorials' training as a LightningModule under Lightning's Trainer.

python lightning_script.py STORE --device cpu --epochs 3 [--images N] [--test-images N] [--seed N]

Logger, checkpoints, bars and validation are off, since they stand outside of the other peers' epochs too. An epoch
begins and ends with Lightning's own hooks. Prints one JSON object an epoch: epoch_s, samples, train_loss,
train_accuracy, test_accuracy.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings

import torch
from common import BATCH, RATE, WARM_STEPS, Images, Order, accuracy, make_model, options, say
from lightning.pytorch import LightningModule, Trainer
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.utils.data import DataLoader


class Net(LightningModule):
    """The net; where it is given test data it prints its epochs."""

    def __init__(self, asked: argparse.Namespace, train: Images, test_loader: DataLoader | None) -> None:
        super().__init__()
        self.net = make_model(asked.seed, train.classes)
        self.count, self.test_loader = len(train), test_loader

    def training_step(self, batch, batch_idx):
        images, labels = batch
        output = self.net(images)
        loss = F.cross_entropy(output, labels)
        right = (output.argmax(1) == labels).float().mean()
        shown = {"train_loss": loss, "train_accuracy": right}
        self.log_dict(shown, on_step=False, on_epoch=True, batch_size=len(labels))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=RATE)

    def on_train_epoch_start(self) -> None:
        self.trainer.train_dataloader.sampler.epoch = self.current_epoch
        self.begin = time.perf_counter()

    def on_train_epoch_end(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        epoch_s = time.perf_counter() - self.begin
        if self.test_loader is not None:
            shown = {name: float(self.trainer.callback_metrics[name]) for name in ("train_loss", "train_accuracy")}
            found = accuracy(self.net, self.test_loader, self.device)
            self.net.train()
            say(epoch_s=epoch_s, samples=self.count, **shown, test_accuracy=found)


def main() -> None:
    """Trains, evaluates and prints; a first net takes the steps that warm the process up."""
    asked = options(__doc__)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers")  # nor have the other peers
    train, test = (Images(asked.store, *of) for of in (("train", asked.images), ("test", asked.test_images)))
    loader = DataLoader(train, batch_size=BATCH, sampler=Order(len(train), asked.seed))
    for warm in (True, False):
        trainer = Trainer(
            accelerator=asked.device,
            devices=1,
            max_epochs=1 if warm else asked.epochs,
            limit_train_batches=WARM_STEPS if warm else None,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Net(asked, train, None if warm else DataLoader(test, BATCH)), loader)


if __name__ == "__main__":
    main()
