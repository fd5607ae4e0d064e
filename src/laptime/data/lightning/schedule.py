"""The schedule of a LightningModule's learning rate, moved on when Lightning's Trainer would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from laptime.data.lightning.trainer import StandIn, attached
from laptime.own.user_code import wanted

# What schedules write into a group beside its rate.
_BESIDE = ("momentum", "betas", "weight_decay")


def apart(given: Any) -> tuple[Any, list[dict[str, Any]]]:
    """What configure_optimizers() gives in two: its optimizer, or what stands in its place, and its schedules.

    These are in dictionaries as Lightning takes them: scheduler, interval, frequency.
    """
    schedules: Any = ()
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], list | tuple):
        given, schedules = given
    if isinstance(given, tuple | list) and len(given) == 1:
        given = given[0]
    if isinstance(given, dict):
        schedules = given.get("lr_scheduler")
        given = given.get("optimizer")
    several = schedules if isinstance(schedules, list | tuple) else [schedules]
    named = [s if isinstance(s, dict) else {"scheduler": s} for s in several]
    return given, [s for s in named if s.get("scheduler") is not None]


def left_behind(schedule: dict[str, Any]) -> str:
    """Why a schedule can't be moved on after a step alone; empty where it can."""
    asked = wanted(schedule["scheduler"].step)
    return f"its step() wants {asked[0]!r}, and nothing is given after a batch" if asked else ""


class FollowedSchedule:
    """Does to an optimizer what the schedules of another one, which is like it, do to that.

    A schedule writes to the optimizer that it was made with, by functions of the user's perhaps, so it stays with that.
    Rates keep the ratio to it that they begin with.

    Args:
        optimizer: the one that trains; its rates are the peaks.
        own: the one of the module that its schedules were made with.
        before: that one as it was before.
        schedules: see `apart`.
        trainer: what they ask of the module's Trainer; it counts the steps for them.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        own: Optimizer,
        before: Optimizer,
        schedules: Sequence[dict[str, Any]],
        trainer: StandIn,
    ) -> None:
        # Those by epoch come last, as under Lightning's Trainer.
        self.schedules = sorted(schedules, key=lambda s: s.get("interval", "epoch") == "epoch")
        self.trainer, self.steps = trainer, trainer.estimated_stepping_batches // trainer.max_epochs
        self.batches, self.parts = trainer.num_training_batches, trainer.accumulate_grad_batches
        own._opt_called = True  # type: ignore[attr-defined]  # a schedule warns of an optimizer that takes no steps
        last = len(own.param_groups) - 1
        places = [min(place, last) for place in range(len(optimizer.param_groups))]
        # Not its groups: what loads an optimizer's state gives it others.
        self.optimizer, self.own = optimizer, [own.param_groups[p] for p in places]
        starts = [before.param_groups[p] for p in places]
        pairs = [(float(g["lr"]), float(s["lr"])) for g, s in zip(optimizer.param_groups, starts, strict=True)]
        first = next((rate / start for rate, start in pairs if start), 1.0)
        self.ratios = [rate / start if start else first for rate, start in pairs]
        self.written = [{name: s[name] for name in _BESIDE if name in s} for s in starts]
        self.cycles = any("max_momentum" in group for group in own.param_groups)  # the momentum, as OneCycleLR does
        self._write()

    def step(self) -> None:
        """Moves on those whose turn it is after a step of the optimizer, and writes what they say."""
        self.trainer.current_epoch = self.trainer.global_step // self.steps
        self.trainer.global_step += 1
        epoch, batch = divmod(self.trainer.global_step, self.steps)
        due = [s for s in self.schedules if self._is_due(s, epoch, batch)]
        if due:
            with attached(self.trainer.model, self.trainer):
                for schedule in due:
                    schedule["scheduler"].step()
            self._write()

    def end_epoch(self) -> None:
        """Leaves out the steps before the last one of an epoch, and takes that, for a look at what moves on then."""
        self.trainer.global_step = max(self.trainer.global_step, self.steps - 1)
        self.step()

    def _is_due(self, schedule: dict[str, Any], epoch: int, batch: int) -> bool:
        """Whether it is a schedule's turn, by whole epochs behind it and batches of the next one."""
        every = schedule.get("frequency", 1)
        if schedule.get("interval", "epoch") == "step":
            # Lightning counts batches, anew in each epoch, and looks at a step's end.
            return bool((batch * self.parts if batch else self.batches) % every == 0)
        return bool(batch == 0 and epoch % every == 0)

    def _write(self) -> None:
        groups = self.optimizer.param_groups
        for group, own, ratio, written in zip(groups, self.own, self.ratios, self.written, strict=True):
            rate = float(own["lr"]) * ratio
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
            for name in written:
                if name in group and own[name] != written[name]:
                    group[name] = written[name] = own[name]
