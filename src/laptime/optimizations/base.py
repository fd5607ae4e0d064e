"""The recipe of a run: what optimizations edit, one after another, before anything is built from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from laptime.data.boxes.tensors import BoxData
from laptime.data.own.opened import OwnData
from laptime.data.tensors import ImageData
from laptime.optimizations.modes import AS_TORCH, Modes
from laptime.optimizations.passes import one_pass
from laptime.spec import OptimizationSpec, Option
from laptime.values.tallies import Numbers
from laptime.workloads.base import Batch, Counts, Output, Workload
from laptime.world import ALONE, World

if TYPE_CHECKING:
    from laptime.optimizations.average import Average
    from laptime.optimizations.driver import Driver
    from laptime.optimizations.selecting import Selection


class Mark(Protocol):
    """Called at the borders of a step's parts with the name of the part that ends there."""

    def __call__(self, part: str) -> None: ...


def unmarked(part: str) -> None:
    """For those who time nothing."""


class Loader(Protocol):
    """Batches of an epoch, in the order of the run's permutation."""

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """Yields the batches of an epoch; the same for the same index, whatever the loader.

        Where it copies batches to the device, it marks the border itself: `data` before and `copy` after. What starts
        worker processes marks `workers`.
        """
        ...

    def __len__(self) -> int:
        """Steps of an epoch."""
        ...


class Schedule(Protocol):
    """A learning rate over the steps."""

    def step(self) -> None:
        """Moves on by one optimizer step."""
        ...


class ConstantRate:
    """The schedule of the tutorials: none."""

    def step(self) -> None:
        """Leaves the learning rate as it is."""


AnyData = ImageData | OwnData | BoxData
Forward = Callable[[nn.Module, Batch], Output]
MakeSchedule = Callable[[Optimizer, int], Schedule]
Wrap = Callable[[nn.Module], nn.Module]
Exchange = Callable[[nn.Module], None]
Passes = Callable[["Parts", Batch], Output]
MakeOptimizer = Callable[..., Optimizer]
MakeAverage = Callable[[nn.Module, int], "Average"]
Augment = Callable[[Batch, Tensor, int], Batch]


def no_exchange(model: nn.Module) -> None:
    """The gradients of one process are whole as they are."""


def unclipped(parts: Parts) -> None:
    """Gradients go to the optimizer as they are."""


@dataclass
class Parts:
    """What the loop works with; built fresh for each run from a recipe.

    Attributes:
        model: the module that holds parameters and buffers: for state, evaluation and the optimizer.
        net: what a training step calls: the model itself, or the model in the recipe's wrappers.
        forward: net and batch to loss and right answers, with the precision of the run.
        step: one training step, from batch to counts.
        passes: forward and backward of a step's batch; whole, or in parts.
        exchange: called between backward and optimizer; where ranks exchange gradients by themselves.
        clip: called after the exchange, before the optimizer; where gradients are bounded.
        average: the moving average of the weights, where the recipe has one.
        scaler: scales the loss for fp16 gradients; switched off, it hands everything through.
        driver: see `Recipe.driver`.
        mark: consumer of the borders between a step's parts.
        numbers: what a net and an object of the user's own count, before any step.
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
    scaler: GradScaler
    average: Average | None = None
    driver: Driver | None = None
    clip: Callable[[Parts], None] = unclipped
    passes: Passes = one_pass
    numbers: Numbers = field(default_factory=list)

    @property
    def evaluated(self) -> nn.Module:
        """The module that evaluation and saving use."""
        return self.model if self.average is None else self.average.evaluated


def adam(model: nn.Module, learning_rate: float | Tensor, **options: Any) -> Optimizer:
    """Adam as the tutorials use it."""
    return torch.optim.Adam(model.parameters(), lr=learning_rate, **options)


def constant(optimizer: Optimizer, steps: int) -> Schedule:
    """No schedule."""
    return ConstantRate()


@dataclass(frozen=True)
class Loading:
    """How the loader over single items fetches them.

    Attributes:
        workers: processes; 0 for none beside the training.
        page_locked: batches in page-locked memory, as DataLoader's `pin_memory`; each step still waits for its copy.
        pinned: page-locked batches that are copied on a stream of their own while the step before them runs.
    """

    workers: int = 0
    page_locked: bool = False
    pinned: bool = False


@dataclass(frozen=True)
class Recipe:
    """A run before it is built; an optimization is a pure function from one recipe to another.

    Attributes:
        model: the net in fp32, initialized; model-stage optimizations replace modules in their own copy of it.
        image_size: height and width of the inputs; (0, 0) where batches are the user's own or sizes differ.
        channels_last: whether images come in NHWC memory format.
        make_loader: loader from the finished recipe.
        make_schedule: schedule from the optimizer and the steps of the whole counted run.
        make_optimizer: optimizer from the finished model (never one in wrappers), learning rate and
            `optimizer_options`; it says which parameters make a group, and what is special about each.
        optimizer_options: further arguments of the optimizer.
        clip_norm: the largest norm (L2) of the whole gradient; None for any.
        micro_batch: samples of a rank that go through the net at once, at most; None for all of a batch.
        augments: applied in turn to each training batch, on the run's device: batch, the samples' indices [B], epoch.
        epoch_sizes: height and width of the training images by epoch; empty where they are `image_size` in all.
        smoothing: share of each label that the training loss spreads over all classes.
        selection: which part of a batch trains a step; None where all of it does in all epochs.
        make_average: moving average of a model's weights, from the model and the steps of an epoch.
        wrappers: applied to the model on its device, the innermost first, for the training step alone (compiler, DDP).
        exchange: see `Parts.exchange`.
        world: this process among the ranks that train together; `batch_size` is that of all ranks together.
        copies: by how much the batch is that of the spec: the ranks under weak scaling, else 1.
        precision: `fp32`, `bf16` or `fp16`: which ceiling the throughput is compared with.
        loading: how items are fetched, where the loader works item by item.
        modes: number modes of the process, set when the parts are built.
        loss_scaling: whether the loss is scaled so that small fp16 gradients do not vanish.
        rate_on_device: whether the learning rate is a tensor on the device, as a captured optimizer step needs it.
        evaluate_on: where the model is evaluated; None for the run's device.
        settled: options that a transform chose by timing, by optimization; the record writes them out.
        compiled: whether a wrapper compiles, so that compilations are watched.
        relaunched: whether the compiler has passes in CUDA graphs, each of which writes gradients where it last did.
        driver: a trainer whose own loop walks through the epochs; None for laptime's.
        warmup_calls: steps that the warm-up runs at least in each shape; more than 1 where a later one is recorded.
        notes: what the user should know, shown with the variant.
        applied: the optimizations that have made it what it is.
    """

    workload: Workload
    model: nn.Module
    data: AnyData
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
    make_optimizer: MakeOptimizer = adam
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    clip_norm: float | None = None
    micro_batch: int | None = None
    augments: tuple[Augment, ...] = ()
    epoch_sizes: tuple[tuple[int, int], ...] = ()
    smoothing: float = 0.0
    selection: Selection | None = None
    make_average: MakeAverage | None = None
    wrappers: tuple[Wrap, ...] = ()
    exchange: Exchange = no_exchange
    channels_last: bool = False
    world: World = ALONE
    copies: int = 1
    precision: str = "fp32"
    loading: Loading = Loading()
    modes: Modes = AS_TORCH
    loss_scaling: bool = False
    rate_on_device: bool = False
    evaluate_on: torch.device | None = None
    settled: dict[str, dict[str, Option]] = field(default_factory=dict)
    compiled: bool = False
    relaunched: bool = False
    driver: Driver | None = None
    warmup_calls: int = 1
    notes: tuple[str, ...] = ()
    applied: tuple[OptimizationSpec, ...] = ()

    @property
    def channels(self) -> int:
        """Values of a pixel; 0 where the data is a user's own."""
        return len(self.data.mean) if isinstance(self.data, ImageData) else 0

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """All sizes of images that the net meets, that of the evaluation first."""
        return tuple(dict.fromkeys((self.image_size, *self.epoch_sizes)))

    def kind(self, epoch: int) -> tuple[tuple[int, int], float]:
        """What makes an epoch's steps others by design: size of the images, share of a batch that trains."""
        grown = self.epoch_sizes[: epoch + 1] or (self.image_size,)
        return grown[-1], 1.0 if self.selection is None else self.selection.share(epoch)


Options = dict[str, Option]
Transform = Callable[[Recipe, Options], Recipe]


def permutation(count: int, seed: int, epoch: int) -> Tensor:
    """The order of the samples in an epoch: one for each seed and epoch, made on the CPU, whatever the loader.

    Returns:
        Indices [count], int64.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**64)
    return torch.randperm(count, generator=generator)


def batches(order: Tensor, size: int, ranks: int = 1) -> list[Tensor]:
    """Cuts an order [count] into batches of `size`; a remainder that gives a rank less than two joins the one before.

    A single sample has no variance over the batch, so BatchNorm on a 1x1 map would fail or train on noise. Batches that
    are meant to be of one sample stay so.
    """
    cut = list(order.split(size))
    if size > 1 and len(cut) > 1 and len(cut[-1]) < 2 * ranks:
        cut[-2:] = [torch.cat(cut[-2:])]
    return cut


@dataclass(frozen=True)
class Share:
    """What one rank takes of a batch.

    Attributes:
        indices: of its samples [n].
        weight: n times the ranks over the samples of the whole batch: what its mean loss counts, so that the mean over
            the ranks is that of the whole batch where the parts are unequal.
    """

    indices: Tensor
    weight: float


def shares(order: Tensor, size: int, world: World) -> list[Share]:
    """A rank's parts of an epoch: contiguous parts of the batches of one process, sizes differ by one at most."""
    return [
        Share(mine, len(mine) * world.size / len(whole))
        for whole in batches(order, size, world.size)
        for mine in (whole.tensor_split(world.size)[world.rank] if world.size > 1 else whole,)
    ]
