"""Stage loss: a step trains on those samples of its batch whose losses are highest."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from laptime.errors import UsageError
from laptime.optimizations.base import Forward, Loader, Mark, Options, Recipe, unmarked
from laptime.workloads.base import Batch, LossesBySample, Output

# Products of shares and whole numbers are off by less.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Selection:
    """How much of each batch trains.

    Attributes:
        shares: of the samples, by epoch; 1 where all of them do.
        every: each so many steps of an epoch the whole batch trains; 0 for never.
    """

    shares: tuple[float, ...]
    every: int

    def share(self, epoch: int) -> float:
        """Share of a batch that trains in an epoch."""
        return self.shares[min(epoch, len(self.shares) - 1)]

    def trained(self, count: int, epoch: int, step: int) -> int | None:
        """How many of a batch's samples train in a step of an epoch, both from 0; None for all.

        Two at least, since BatchNorm takes no single one.
        """
        if self.every and step % self.every == self.every - 1:
            return None
        kept = max(2, math.ceil(self.share(epoch) * count - _ROUNDING))
        return kept if kept < count else None


@dataclass(frozen=True)
class Selecting:
    """A loader whose batches say how much of them trains: by epoch and step alone, so that a resumed run goes on so."""

    inner: Loader
    selection: Selection

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader.epoch`."""
        for step, batch in enumerate(self.inner.epoch(index, mark)):
            yield replace(batch, trained=self.selection.trained(len(batch), index, step))

    def __len__(self) -> int:
        return len(self.inner)


def selective_backprop(recipe: Recipe, options: Options) -> Recipe:
    """Trains on the part of each batch that has the highest losses, found by a forward pass without gradients.

    Source: Jiang et al. 2019 (arXiv:1910.00762), who draw each sample by the rank of its loss among those seen last. A
    fixed share of the batch has a fixed shape instead, and nothing is read: Kawaguchi and Lu 2019 (arXiv:1907.04371).
    """
    keep, every = float(options["keep"]), int(options["every"])
    begin, end = float(options["begin"]), float(options["end"])
    if begin >= end or every == 1:
        raise UsageError(
            f"selective-backprop:begin={begin:g}:end={end:g}:every={every} selects nothing: give begin < end, and "
            "every=0 or at least 2."
        )
    losses = recipe.workload.by_sample(recipe.smoothing)
    if losses is None:
        raise UsageError(
            f"selective-backprop needs the loss of each sample, and that of {recipe.workload.name} is a mean: leave "
            "it out."
        )
    first, after = _span(recipe.epochs, begin, end)
    if first == after:
        note = f"all samples train: {recipe.epochs} epochs leave none for a part of them"
        return replace(recipe, notes=(*recipe.notes, note))
    shares = shares_by_epoch(recipe.epochs, keep, begin, end)
    note = f"{keep:.0%} of each batch train in epochs {first + 1} to {after} of {recipe.epochs}"
    return replace(
        recipe,
        forward=_selective(recipe.forward, losses),
        selection=Selection(shares, every),
        notes=(*recipe.notes, note),
    )


def shares_by_epoch(epochs: int, keep: float, begin: float, end: float) -> tuple[float, ...]:
    """Share of each batch that trains, by epoch; `laptime explain --code` prints it."""
    first, after = _span(epochs, begin, end)
    return tuple(keep if first <= epoch < after else 1.0 for epoch in range(epochs))


def _span(epochs: int, begin: float, end: float) -> tuple[int, int]:
    """The first epoch that selects, and the first after it that does not; from 0."""
    return math.ceil(begin * epochs - _ROUNDING), math.ceil(end * epochs - _ROUNDING)


def _selective(forward: Forward, losses: LossesBySample) -> Forward:
    def selected(net: nn.Module, batch: Batch) -> Output:
        if batch.trained is None:
            return forward(net, batch)
        with torch.no_grad():
            found, correct = losses(_alone(net), batch)
        # Weights that were cast without gradients would be taken again, and get none.
        torch.clear_autocast_cache()
        chosen = found.topk(batch.trained).indices
        with still_statistics(net):
            output = forward(net, _part(batch, chosen))
        # All samples are told, as without a selection: the same forward pass, before the step moves the weights.
        return replace(output, correct=correct, count=len(batch), whole=found.mean())

    return selected


def _alone(net: nn.Module) -> nn.Module:
    """What DistributedDataParallel wraps: its own forward pass prepares an exchange of gradients."""
    inner: nn.Module = net.module if isinstance(net, DistributedDataParallel) else net
    return inner


def _part(batch: Batch, chosen: Tensor) -> Batch:
    return replace(batch, inputs=taken(batch.inputs, chosen), labels=batch.labels[chosen], trained=None)


def taken(images: Tensor, chosen: Tensor) -> Tensor:
    """Some images [B, C, H, W] by index [K], in the memory format of all."""
    nhwc = images.is_contiguous(memory_format=torch.channels_last)
    return images[chosen].contiguous(memory_format=torch.channels_last if nhwc else torch.contiguous_format)


@contextlib.contextmanager
def still_statistics(net: nn.Module) -> Iterator[None]:
    """BatchNorm normalizes by the batch and leaves its running statistics alone.

    They have seen the whole batch by then, as the test images are whole; the part with the highest losses is not like
    them.
    """
    norms = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
