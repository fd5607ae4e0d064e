"""Where the training of a LightningModule is: what its steps count, and read of their Trainer."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from laptime.data.lightning.rates import Stepped
from laptime.data.lightning.trainer import Asked, Running, StandIn


class Counting:
    """The numbers of a training that its steps may read.

    They stand in attributes of the workload, as its other numbers, so they begin anew and are in checkpoints.
    """

    def __init__(self) -> None:
        self.global_step, self.current_epoch = 0, 0
        self.batch_idx, self.begun = 0, -1  # in the epoch that has begun
        self._pace = {"steps": 0, "epochs": 0, "size": 0}  # no plain value, so it stays when set
        self._asked = Asked(self)
        self._parts: Callable[[], Any] = lambda: None

    def paced(self, steps: int, epochs: int, size: int) -> None:
        """Notes the steps of an epoch, the epochs and a step's samples, for what asks its Trainer where it is."""
        self._pace = {"steps": steps, "epochs": epochs, "size": size}

    @property
    def unread(self) -> tuple[str, ...]:
        """Numbers that are counted though no step has read one."""
        return () if self._asked.names else ("global_step", "current_epoch", "batch_idx", "begun")

    def begin_step(self) -> None:
        """Counts a step of training that begins; behind the last counted epoch a profile repeats its steps."""
        steps, epochs, _ = self._pace.values()
        if steps:
            epoch = self.global_step // steps
            self.batch_idx, self.begun = self.batch_idx + 1 if epoch == self.begun else 0, epoch
            self.current_epoch = min(epoch, epochs - 1)

    def stepping(self, parts: Any) -> None:
        """Notes what trains, whose `optimizer` is the one that steps; it is not kept alive."""
        self._parts = weakref.ref(parts)

    def running(
        self, planned: Callable[[Any, int], StandIn], own: Optimizer, schedules: int
    ) -> Callable[[Any], Running]:
        """What gives a step of a module its Trainer.

        Args:
            planned: gives what has the numbers for a module and a step's samples, 0 for those that are planned.
            own: the module's optimizer, whose rates are told then.
            schedules: how many there are.
        """

        def now() -> list[dict[str, Any]]:
            parts = self._parts()
            found: Optimizer = own if parts is None else parts.optimizer
            return found.param_groups

        stepped = Stepped(now, len(own.param_groups), schedules)

        def trainer_of(module: Any) -> Running:
            _, epochs, size = self._pace.values()
            plan = planned(module, size)
            return Running(plan, epochs or plan.max_epochs, stepped)

        return trainer_of
