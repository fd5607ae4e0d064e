"""What stands in for Lightning's Trainer while a module and its data are set up: how long the training is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from laptime.data.lightning.rates import Rates, Stepped, lr_schedulers, optimizers, rates_of


class Pace(NamedTuple):
    """How an epoch is gone through.

    Attributes:
        steps: of the optimizer.
        batches: that go through the net, of which a step may take several.
        parts: of a whole step's batch.
    """

    steps: int
    batches: int
    parts: int = 1


def pace_of(count: int, size: int, most: int | None) -> Pace:
    """The pace of `count` samples in batches of a size, each in parts of `most` samples; a last one joins the batch
    before it.
    """
    whole, rest = divmod(count, size)
    sizes = [size] * (whole - (rest == 1)), [size + 1 if rest == 1 else rest] * (rest > 0)
    steps = max(1, whole + (rest > 1))
    if most is None:
        return Pace(steps, steps)
    return Pace(steps, max(1, sum(-(-held // most) for some in sizes for held in some)), -(-size // most))


class StandIn:
    """A Trainer's numbers, as of one process whose batches are those of all ranks; no steps are taken through it.

    Attributes:
        model: the module, `lightning_module` too.
        max_epochs: counted epochs.
    """

    world_size = num_devices = num_nodes = 1
    global_rank = local_rank = node_rank = 0
    max_steps = -1
    is_global_zero = True
    logger, loggers = None, ()
    model: Any = None
    lightning_module: Any = None
    max_epochs = 1
    current_epoch = global_step = 0

    def __init__(self, model: Any, epochs: int, pace: Callable[[], Pace], data: Callable[[], tuple[Any, Any]]) -> None:
        """Takes what gives the pace of an epoch, and what gives the LightningDataModule and its training loader."""
        self.model = self.lightning_module = model
        self.max_epochs, self._pace, self._data = epochs, pace, data

    @property
    def num_training_batches(self) -> int:
        """Batches of an epoch, of which a step may take several."""
        return self._pace().batches

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches of a step."""
        return self._pace().parts

    @property
    def estimated_stepping_batches(self) -> int:
        """Steps of the whole training."""
        return self.max_epochs * self._pace().steps

    @property
    def datamodule(self) -> Any:
        """The LightningDataModule; None where the module has loaders of its own."""
        return self._data()[0]

    @property
    def train_dataloader(self) -> Any:
        """The loader to train, as the user's code makes it."""
        return self._data()[1]

    def __getattr__(self, name: str) -> Any:
        """Tells that a name is not there; raises AttributeError."""
        raise AttributeError(f"only Lightning's own Trainer has {name!r}")


class Running(StandIn):
    """What a step may ask of its Trainer besides: where the training is, as its module counts it.

    Attributes:
        stepped: gives the optimizer that steps.
    """

    sanity_checking = testing = predicting = False

    def __init__(self, asked: StandIn, epochs: int, stepped: Stepped) -> None:
        """Takes what stands there before the run, and what is known in it."""
        super().__init__(asked.model, epochs, asked._pace, asked._data)
        self.stepped = stepped

    @property
    def optimizers(self) -> list[Rates]:
        """Of the one optimizer its rates."""
        return [rates_of(self.stepped)[0]]

    @property
    def lr_scheduler_configs(self) -> list[Rates]:
        """Of each schedule the rates."""
        return rates_of(self.stepped)[1]

    @property
    def current_epoch(self) -> int:  # type: ignore[override]  # nobody sets it: it is the module's
        """Epochs behind this one."""
        return int(self.model.current_epoch)

    @property
    def global_step(self) -> int:  # type: ignore[override]  # likewise
        """Steps of the optimizer behind this one."""
        return int(self.model.global_step)

    @property
    def training(self) -> bool:
        """Whether the step is one of training."""
        return bool(self.model.training)

    @property
    def validating(self) -> bool:
        """Whether it is one of an evaluation."""
        return not self.training


def following(kind: type, progress: Any, running: Callable[[Any], StandIn]) -> type:
    """A module's class with `current_epoch` and `global_step` of another object, and a `trainer` in its steps.

    A class, so that a copy of a module counts with it; one of which base classes that note those below them hear
    nothing, as they may want to be told more.

    Args:
        kind: the class.
        progress: has the two numbers.
        running: gives what a module finds for its Trainer where none is attached.
    """
    theirs: Any = kind
    read: dict[str, Any] = {name: _read(progress, name) for name in ("current_epoch", "global_step")}
    read |= {"optimizers": optimizers, "lr_schedulers": lr_schedulers}
    read["trainer"] = property(lambda m: running(m) if m._trainer is None else m._trainer, theirs.trainer.fset)
    own = vars(kind).get("__init_subclass__")
    type.__setattr__(kind, "__init_subclass__", classmethod(lambda _: None))
    try:
        return type(kind.__name__, (kind,), {"__module__": kind.__module__} | read)
    finally:
        if own is None:
            type.__delattr__(kind, "__init_subclass__")
        else:
            type.__setattr__(kind, "__init_subclass__", own)


def _read(progress: Any, name: str) -> property:
    return property(lambda _: getattr(progress, name))


class Asked:
    """Gives what another object has, and notes the names."""

    def __init__(self, owner: Any) -> None:
        self._owner, self.names = owner, set[str]()

    def __getattr__(self, name: str) -> Any:
        """Of the other object."""
        self.names.add(name)
        return getattr(self._owner, name)


def attributes(owner: Any) -> dict[str, Any]:
    """An object's own attributes as they are now; lists and dictionaries among them are copies."""
    return {n: copy.copy(v) if isinstance(v, list | dict | set) else v for n, v in vars(owner).items()}


def put_back_attributes(owner: Any, kept: dict[str, Any]) -> None:
    """Gives an object the attributes that it had, and no others: a second call of its own begins from the same."""
    vars(owner).clear()
    vars(owner).update({n: copy.copy(v) if isinstance(v, list | dict | set) else v for n, v in kept.items()})


@contextmanager
def attached(owner: Any, trainer: StandIn) -> Iterator[Any]:
    """Within it a module or its data find this Trainer; steps behind it find another, see `following`."""
    owner.trainer = trainer
    try:
        yield owner
    finally:
        owner.trainer = None
