"""Where the training of a LightningModule is: what its steps count, and read of their Trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from laptime.data.lightning.trainer import Asked, Running, StandIn


class Counting:
    """The numbers of a training that its steps may read.

    They stand in attributes of the workload, as its other numbers, so they begin anew and are in checkpoints.
    """

    def __init__(self) -> None:
        self.global_step, self.current_epoch = 0, 0
        self.batch_idx, self.begun = 0, -1  # in the epoch that has begun
        self._pace, self._asked = {"steps": 0, "epochs": 0}, Asked(self)  # no plain value, so it stays when set

    def paced(self, steps: int, epochs: int) -> None:
        """Notes the steps of an epoch and the epochs, for what asks its Trainer where it is."""
        self._pace = {"steps": steps, "epochs": epochs}

    @property
    def unread(self) -> tuple[str, ...]:
        """Numbers that are counted though no step has read one."""
        return () if self._asked.names else ("global_step", "current_epoch", "batch_idx", "begun")

    def begin_step(self) -> None:
        """Counts a step of training that begins; behind the last counted epoch a profile repeats its steps."""
        steps, epochs = self._pace.values()
        if steps:
            epoch = self.global_step // steps
            self.batch_idx, self.begun = self.batch_idx + 1 if epoch == self.begun else 0, epoch
            self.current_epoch = min(epoch, epochs - 1)

    def running(self, planned: Callable[[Any], StandIn]) -> Callable[[Any], Running]:
        """What gives a step of a module its Trainer, which before the run has the numbers that are planned."""

        def trainer_of(module: Any) -> Running:
            (steps, epochs), plan = self._pace.values(), planned(module)
            data = lambda: (plan.datamodule, plan.train_dataloader)  # noqa: E731
            return Running(module, epochs or plan.max_epochs, lambda: steps or plan.num_training_batches, data)

        return trainer_of
