"""A run under Lightning's Trainer; imported where it is used alone, for few have Lightning."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from laptime.optimizations.base import Parts
from laptime.optimizations.driver import Lap
from laptime.workloads.base import Batch, Counts


class Run(LightningModule):
    """A run, written as Lightning's tutorials do it: the loss is returned, loss and accuracy are logged."""

    def __init__(self, p: Parts, lap: Lap) -> None:
        super().__init__()
        self.net, self.p, self.lap = p.net, p, lap
        self.counts: Counts | None = None

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """See LightningModule."""
        output = self.p.forward(self.net, batch)
        logged = {"train_loss": output.loss}
        if output.correct is not None:
            logged["train_accuracy"] = output.correct / output.count
        self.log_dict(logged, on_step=False, on_epoch=True, batch_size=output.count)
        self.counts = output.detached()
        self.p.mark("forward")
        return output.loss

    def configure_optimizers(self) -> Optimizer:
        """See LightningModule."""
        return self.p.optimizer

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """See LightningModule; the run's loader has done it."""
        return batch

    def on_train_epoch_start(self) -> None:
        """See LightningModule."""
        self.lap.begin()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """See LightningModule."""
        self.p.mark("data")

    def on_after_backward(self) -> None:
        """See LightningModule."""
        self.p.mark("backward")

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """See LightningModule."""
        self.p.clip(self.p)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """See LightningModule."""
        self.p.schedule.step()
        self.p.mark("optimizer")

    def on_train_epoch_end(self) -> None:
        """See LightningModule."""
        self.end_step()
        self.lap.end()

    def end_step(self) -> None:
        """Ends the step before, if there is one that has not ended yet."""
        if self.counts is not None:
            self.lap.step(self.counts)
            self.counts = None


class Batches:
    """An epoch of the run's own loader, as something that Lightning takes for a loader."""

    def __init__(self, p: Parts, index: int, run: Run) -> None:
        self.p, self.index, self.run = p, index, run

    def __iter__(self) -> Iterator[Batch]:
        batches = self.p.loader.epoch(self.index, self.p.mark)
        while True:
            self.run.end_step()
            batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def __len__(self) -> int:
        return len(self.p.loader)


def fit(p: Parts, index: int, lap: Lap, **options: Any) -> None:
    """Trains one epoch with a fresh Trainer.

    Args:
        p: the run; net and optimizer are where they were when it returns.
        index: which permutation of the samples to take.
        lap: told of the epoch.
        options: further ones of the Trainer.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # it names the devices in each fit
    trainer = Trainer(
        accelerator=p.device.type,
        devices=[p.device.index or 0] if p.device.type == "cuda" else 1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[LightningEnvironment()],  # one process, whatever a cluster's variables say
        **options,
    )
    run = Run(p, lap)
    with warnings.catch_warnings():
        # Of torch 2.15 about Lightning 2.6's own use of its trees, in each fit.
        warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.` is deprecated", FutureWarning)
        # The one-step check stills what is random; and what of a user's net is not in training mode is so on purpose.
        warnings.filterwarnings("ignore", r"Found \d+ module.s. in eval mode", PossibleUserWarning)
        trainer.fit(run, Batches(p, index, run))
    # A fit leaves net and optimizer on the CPU.
    p.model.to(p.device)
    for state in p.optimizer.state.values():
        state.update({k: v.to(p.device) for k, v in state.items() if isinstance(v, Tensor) and k != "step"})
