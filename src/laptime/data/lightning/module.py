"""A LightningModule with its data as a workload of the user's own; Lightning itself is imported by the user's file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from laptime.data.lightning.counting import Counting
from laptime.data.lightning.hooks import notes_on, trainer_arguments, warning_of
from laptime.data.lightning.loaders import Loaders, batches_of, drawn_by, loaders_of, not_taken
from laptime.data.lightning.made import made_of
from laptime.data.lightning.numbered import asks_parts, compile_refusals, number_notes, reads_number
from laptime.data.lightning.optimizer import made_like, optimizer_of
from laptime.data.lightning.refused import (
    is_lightning,
    line_of,
    overridden,
    refuse_what_needs_a_trainer,
)
from laptime.data.lightning.schedule import FollowedSchedule, apart, left_behind
from laptime.data.lightning.skipped import skip_notes, skip_refusals, skipping
from laptime.data.lightning.steps import Steps
from laptime.data.lightning.trainer import Pace, StandIn, attached, attributes, following, pace_of, put_back_attributes
from laptime.errors import RunError
from laptime.values.copies import copy_of
from laptime.world import once

MODULE, DATA = "LightningModule", "LightningDataModule"


class LightningWorkload(Counting):
    """See `laptime.Workload`.

    Args:
        module: a LightningModule, its class, or a function that makes it.
        file: the user's.
    """

    def __init__(self, module: Any, file: Path) -> None:
        super().__init__()
        self._given, self.file = module, file
        self._epochs, self._limit, self._is_set_up = 1, 0, False
        self.stretched = 1  # see `lengths`
        self._copies = {"steps": 1}  # no plain value, which a new net would put back
        self._before: dict[str, Any] = {}
        with torch.random.fork_rng(devices=[]):  # the weights of the run are drawn from its seed alone
            self._first = self._loads = self._made()
            refuse_what_needs_a_trainer(self._first, file)

    def loading_from(self, data: Any) -> LightningWorkload:
        """Takes the loaders of a LightningDataModule, of its class or of a function that makes it."""
        with torch.random.fork_rng(devices=[]):
            self._loads = made_of(data, DATA, self.file)
        refuse_what_needs_a_trainer(self._loads, self.file)
        return self

    def lasting(self, epochs: int, limit: int | None) -> None:
        """Notes how long the training is, for what asks its Trainer: epochs, and how many samples are kept of the data.

        To be called before the data are asked for.
        """
        self._epochs, self._limit = epochs, limit or 0

    @property
    def numbered(self) -> bool:
        """Whether the module's training_step() reads the number of its batch."""
        return bool(reads_number(self._first, "training_step"))

    @cached_property
    def skips(self) -> str:
        """Where the module's training_step() skips its batch; else empty."""
        return skipping(self._first)

    @property
    def refused(self) -> dict[str, str]:
        """The optimizations that are not for a module that does so, with the reason."""
        asked = "batch_idx" if self.numbered else asks_parts(self._first)
        told = f"its module reads {asked}, which counts micro batches"
        counted = {"whole-batch": told} if asked and self.micro_batch_size else {}
        return counted | compile_refusals(self.numbered, self._asked.names) | skip_refusals(self.skips)

    def shared_by(self, copies: int) -> None:
        """Notes by how much a step's batch is that of the loader, in models that are made from now on."""
        self._copies = {"steps": copies}

    def configure(self) -> None:
        """Has the module make its optimizer; raises UsageError for one that can't be followed."""
        _ = self._configured

    @property
    def title(self) -> str:
        """The module's class."""
        return type(self._first).__name__

    @property
    def step(self) -> Any:
        """The module's training_step(), to be named where something is wrong with it."""
        return overridden(self._first, "training_step")

    @property
    def configuring(self) -> Any:
        """The module's configure_optimizers(), to be named likewise."""
        return overridden(self._first, "configure_optimizers")

    @property
    def loading(self) -> Any:
        """What gives the training loader, to be named likewise; None where nothing does."""
        return overridden(self._loads, "train_dataloader")

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the user's is left out."""
        said = [note for owner in self._owners for note in (*notes_on(owner), *number_notes(owner))]
        in_parts = self.micro_batch_size is not None and self.micro_batch_size < self.batch_size
        done = {"gradient_clip_val": self.clip_norm is not None, "accumulate_grad_batches": in_parts}
        said += skip_notes(self.skips)
        said += trainer_arguments(self.file, [name for name, own in done.items() if own])
        said += [*self._loaders.notes, *not_taken(*self._loaders[:2])]
        for schedule in self._configured[1]:
            if reason := left_behind(schedule):
                said.append(f"its schedule ({type(schedule['scheduler']).__name__}) is left out: {reason}")
        return tuple(said)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know before a ladder: what is left out and makes it another training."""
        return tuple(filter(None, map(warning_of, self._owners)))

    @property
    def _owners(self) -> tuple[Any, ...]:
        """The module, and its data where they are another object."""
        return (self._first,) if self._loads is self._first else (self._first, self._loads)

    def data(self) -> tuple[Any, Any]:
        """See `laptime.Workload`: the data sets of the loaders."""
        train, test, _ = self._loaders
        return train.dataset, test.dataset

    def sample_weights(self, train: Any) -> Tensor | None:
        """See `laptime.Workload`: those of the training loader's sampler."""
        return drawn_by(self._loaders[0])

    @property
    def batch_size(self) -> int:
        """The training loader's."""
        return int(batches_of(self._loaders[0]).batch_size)

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """The training loader's."""
        found: Callable[[list[Any]], Any] = self._loaders[0].collate_fn
        return found

    @property
    def test_collate_fn(self) -> Callable[[list[Any]], Any]:
        """The loader's of the test: the training loader's may mix samples (mixup, CutMix)."""
        found: Callable[[list[Any]], Any] = self._loaders[1].collate_fn
        return found

    @property
    def worker_init_fn(self) -> Callable[[int], Any] | None:
        """The training loader's."""
        found: Callable[[int], Any] | None = self._loaders[0].worker_init_fn
        return found

    @property
    def learning_rate(self) -> float:
        """That of the optimizer's first group, before a schedule."""
        return float(self._configured[0].param_groups[0]["lr"])

    @property
    def clip_norm(self) -> float | None:
        """The module's own, where it says what is the Trainer's `gradient_clip_val` otherwise."""
        found: float | None = getattr(self._first, "clip_norm", None)
        return found

    @property
    def micro_batch_size(self) -> int | None:
        """The module's own, where it says what is the Trainer's `accumulate_grad_batches` otherwise."""
        found: int | None = getattr(self._first, "micro_batch_size", None)
        return found

    def model(self) -> nn.Module:
        """See `laptime.Workload`: a fresh module, its steps behind `forward`."""
        module = self._set_up(self._made(), again=True)
        with attached(module, self._trainer(module)):  # as under a Trainer: it may freeze parts, fill weights, count
            module.configure_optimizers()
        own, schedules = self._configured
        running = self.running(self._trainer, own, len(schedules))
        for part in module.modules():  # what a module holds of others is told the same
            if is_lightning(part, MODULE):
                part.__class__ = following(type(part), self._asked, running)
        asked = self._asked  # a function's own, which copies of the net share
        return Steps(module, (lambda: int(asked.batch_idx)) if self.numbered else None)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        """See `laptime.Workload`; raises RunError where the step gives no loss."""
        if model.training:
            self.begin_step()
        loss, accuracy = model(batch)
        self.global_step += model.training
        if loss is None and model.training and self.skips:
            loss = torch.zeros((), device=next(model.parameters()).device, requires_grad=True)  # of no weight
        if loss is None:
            raise RunError(
                f"training_step() ({line_of(self.step)}) gave no loss: return it, a scalar tensor, or a dictionary "
                f"with it as 'loss'{'' if model.training else ', or for the test give the module a validation_step()'}."
            )
        return loss, accuracy

    def optimizer(self, parameters: Sequence[Tensor], lr: float | Tensor) -> Optimizer:
        """What configure_optimizers() makes, for the parameters of a net; groups keep the ratios of their rates."""
        return made_like(self._configured[0], list(self._first.parameters()), parameters, lr)

    @property
    def schedule(self) -> Callable[[Optimizer, int, int], FollowedSchedule] | None:
        """See `laptime.Workload`; None where configure_optimizers() gives none that can be followed."""
        return None if all(map(left_behind, self._configured[1])) else self._followed

    def _followed(self, optimizer: Optimizer, steps: int, epochs: int) -> FollowedSchedule:
        """What moves an optimizer's rates as the module's own are: its schedules are made anew, for so many steps."""
        parts = self._trainer(self._first, self._pace["size"])._pace()
        pace = Pace(steps, parts.batches if parts.steps == steps else steps, parts.parts)
        trainer = StandIn(self._first, epochs, lambda: pace, self._data_of_trainer)
        _ = self._configured
        put_back_attributes(self._first, self._before)
        with torch.random.fork_rng(devices=[]), attached(self._ready, trainer) as module:
            own, schedules = apart(module.configure_optimizers())
        followed = [s for s in schedules if not left_behind(s)]
        return FollowedSchedule(optimizer, own, self._configured[0], followed, trainer)

    def _made(self) -> Any:
        """A fresh module."""
        ready = is_lightning(self._given, MODULE) and not isinstance(self._given, type)
        module = copy_of(self._given) if ready else made_of(self._given, MODULE, self.file)
        module.print = print  # Lightning's own asks the Trainer
        return module

    @property
    def _ready(self) -> Any:
        """The first module, set up; what it asks for meanwhile, its own loaders say, finds it so."""
        if not self._is_set_up:
            self._is_set_up = True
            with torch.random.fork_rng(devices=[]):
                self._set_up(self._first)
        return self._first

    @cached_property
    def _configured(self) -> tuple[Optimizer, list[dict[str, Any]]]:
        """The module's optimizer as it is before its schedules, and these."""
        self._before = attributes(self._ready)
        with torch.random.fork_rng(devices=[]), attached(self._ready, self._trainer(self._first)) as module:
            return optimizer_of(module)

    def _set_up(self, owner: Any, again: bool = False) -> Any:
        """Calls what a Trainer calls of a module or its data before a fit: prepare_data() by one rank of each machine.

        Ranks do not call it `again` for another module: not all of them make one.
        """
        with attached(owner, self._trainer(owner)):
            if overridden(owner, "prepare_data") is not None and not (again and dist.is_initialized()):
                once(owner.prepare_data, each_machine=owner.prepare_data_per_node)
            for name, arguments in (("setup", ("fit",)), ("configure_model", ())):
                if overridden(owner, name) is not None:
                    getattr(owner, name)(*arguments)
        return owner

    def _trainer(self, owner: Any, size: int = 0) -> StandIn:
        """What stands in for the Trainer of a module or of its data; 0: steps of as many samples as its loader says."""
        module = owner if is_lightning(owner, MODULE) else self._first

        def pace() -> Pace:
            count = len(self._loaders[0].dataset)  # type: ignore[arg-type]
            of_step = size or self.batch_size * self._copies["steps"]
            found = pace_of(min(self._limit or count, count), of_step, self.micro_batch_size)
            return Pace(found.steps * self.stretched, found.batches * self.stretched, found.parts)

        return StandIn(module, self._epochs, pace, self._data_of_trainer)

    def _data_of_trainer(self) -> tuple[Any, Any]:
        """The LightningDataModule, None where the module has loaders of its own, and the loader to train."""
        return None if self._loads is self._first else self._loads, self._loaders[0]

    @cached_property
    def _loaders(self) -> Loaders:
        if self._loads is self._first:
            _ = self._ready
        else:
            self._set_up(self._loads)
        with attached(self._loads, self._trainer(self._loads)):
            return loaders_of(self._loads, self.file)
