"""The recipe of a run: what optimizations edit, one after another, before anything is built from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from laptime.data.tensors import ImageData
from laptime.spec import Option
from laptime.workloads.base import Batch, Counts, Output, Workload


class Loader(Protocol):
    """Batches of an epoch, in the order of the run's permutation."""

    def epoch(self, index: int) -> Iterator[Batch]:
        """Yields the batches of an epoch; the same for the same index, whatever the loader."""
        ...

    def __len__(self) -> int:
        """Steps of an epoch."""
        ...


class Schedule(Protocol):
    """A learning rate over the steps."""

    def step(self) -> None:
        """Moves on by one optimizer step."""
        ...


class Mark(Protocol):
    """Called at the borders of a step's parts with the name of the part that ends there."""

    def __call__(self, part: str) -> None: ...


class ConstantRate:
    """The schedule of the tutorials: none."""

    def step(self) -> None:
        """Leaves the learning rate as it is."""


Forward = Callable[[nn.Module, Batch], Output]
MakeSchedule = Callable[[Optimizer, int], Schedule]
Wrap = Callable[[nn.Module], nn.Module]
Exchange = Callable[[nn.Module], None]


def no_exchange(model: nn.Module) -> None:
    """The gradients of one process are whole as they are."""


@dataclass
class Parts:
    """What the loop works with; built fresh for each run from a recipe.

    Attributes:
        model: the module that holds parameters and buffers: for state, evaluation and the optimizer.
        net: what a training step calls: the model itself, or the model in the recipe's wrappers.
        forward: net and batch to loss and right answers, with the precision of the run.
        step: one training step, from batch to counts.
        exchange: called between backward and optimizer; where ranks exchange gradients by themselves.
        mark: consumer of the borders between a step's parts.
    """

    model: nn.Module
    net: nn.Module
    optimizer: Optimizer
    schedule: Schedule
    loader: Loader
    forward: Forward
    step: Callable[[Parts, Batch], Counts]
    mark: Mark
    device: torch.device
    exchange: Exchange


def adam(parameters: Iterable[nn.Parameter], learning_rate: float, **options: Any) -> Optimizer:
    """Adam as the tutorials use it."""
    return torch.optim.Adam(parameters, lr=learning_rate, **options)


def constant(optimizer: Optimizer, steps: int) -> Schedule:
    """No schedule."""
    return ConstantRate()


@dataclass(frozen=True)
class Recipe:
    """A run before it is built; an optimization is a pure function from one recipe to another.

    Attributes:
        model: the net in fp32, initialized; model-stage optimizations replace modules in their own copy of it.
        image_size: height and width of the inputs.
        channels_last: whether images come in NHWC memory format.
        make_loader: loader from the finished recipe.
        make_schedule: schedule from the optimizer and the steps of the whole counted run.
        optimizer_options: further arguments of the optimizer.
        wrappers: applied to the model on its device, the innermost first, for the training step alone (compiler, DDP).
        exchange: see `Parts.exchange`.
        precision: `fp32` or `bf16`: which ceiling the throughput is compared with.
        settled: options that a transform chose by timing, by optimization; the record writes them out.
        compiled: whether a wrapper compiles, so that compilations are watched.
        notes: what the user should know, shown with the variant.
    """

    workload: Workload
    model: nn.Module
    data: ImageData
    device: torch.device
    image_size: tuple[int, int]
    batch_size: int
    learning_rate: float
    epochs: int
    seed: int
    make_loader: Callable[[Recipe], Loader]
    forward: Forward
    step: Callable[[Parts, Batch], Counts]
    make_schedule: MakeSchedule = constant
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[Wrap, ...] = ()
    exchange: Exchange = no_exchange
    channels_last: bool = False
    precision: str = "fp32"
    settled: dict[str, dict[str, Option]] = field(default_factory=dict)
    compiled: bool = False
    notes: tuple[str, ...] = ()


Options = dict[str, Option]
Transform = Callable[[Recipe, Options], Recipe]


def permutation(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the samples in an epoch: one for each seed and epoch, made on the CPU, whatever the loader.

    Returns:
        Indices [count], int64.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(count, generator=generator)


def batches(order: Tensor, size: int) -> list[Tensor]:
    """Cuts an order [count] into batches of `size`; a remainder of one joins the batch before it.

    A single sample has no variance over the batch, so BatchNorm on a 1x1 map would fail or train on noise.
    """
    cut = list(order.split(size))
    if len(cut) > 1 and len(cut[-1]) == 1:
        cut[-2:] = [torch.cat(cut[-2:])]
    return cut
