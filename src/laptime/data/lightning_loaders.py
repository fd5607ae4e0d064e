"""The loaders of a LightningModule or of its data: what is taken of them, and what laptime's own draw otherwise."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from laptime.data.lightning_refused import line_of, overridden
from laptime.errors import UsageError

_TRAINING = "train_dataloader"


def loader_of(owner: Any, name: str) -> DataLoader[Any] | None:
    """The loader that a method of the user's gives, None without one; raises UsageError for what can't be followed."""
    function = overridden(owner, name)
    if function is None:
        return None
    found = getattr(owner, name)()
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    where = f"{name}() ({line_of(function)})"
    if not isinstance(found, DataLoader):
        raise UsageError(f"{where} gives a {type(found).__name__}: give one DataLoader of torch's.")
    if isinstance(found.dataset, IterableDataset):
        raise UsageError(
            f"{where} reads an IterableDataset ({type(found.dataset).__name__}), of which no sample can be drawn "
            "by its number: give it a map-style data set."
        )
    if type(found.batch_sampler) is not BatchSampler:
        raise UsageError(f"{where} has a batch_sampler of its own or none: give the DataLoader a batch_size.")
    _check_sampler(found, name == _TRAINING, where)
    return found


def _check_sampler(loader: DataLoader[Any], training: bool, where: str) -> None:
    """Raises UsageError for a sampler whose draws can't be followed; `where` names what gave the loader."""
    sampler: Any = batches_of(loader).sampler
    if type(sampler) not in (RandomSampler, SequentialSampler, WeightedRandomSampler):
        raise UsageError(
            f"{where} draws by {type(sampler).__name__}, but laptime draws each sample once an epoch, or by weights: "
            "leave the sampler out, or give torch's WeightedRandomSampler."
        )
    if not training and getattr(sampler, "replacement", False):
        raise UsageError(
            f"{where} draws by {type(sampler).__name__} with replacement, but the test is on each sample once: leave "
            "the sampler out."
        )
    if isinstance(loader.dataset, Sized) and len(sampler) != len(loader.dataset):
        raise UsageError(
            f"{where} draws {len(sampler)} of {len(loader.dataset)} samples by its {type(sampler).__name__}, but "
            f"laptime draws as many as there are: give it num_samples={len(loader.dataset)} or leave it out, and give "
            "a Subset of the data where some are meant."
        )


def drawn_by(loader: DataLoader[Any]) -> Tensor | None:
    """The weights by which a training loader draws with replacement [n]; None where it has each sample once."""
    sampler: Any = batches_of(loader).sampler
    if not getattr(sampler, "replacement", False):
        return None
    # A RandomSampler with replacement draws all alike.
    return sampler.weights if isinstance(sampler, WeightedRandomSampler) else torch.ones(len(sampler))


def batches_of(loader: DataLoader[Any]) -> BatchSampler:
    """What draws batches: a loader that is given one has neither batch_size nor sampler itself."""
    found = loader.batch_sampler
    assert isinstance(found, BatchSampler)
    return found


def not_taken(loader: DataLoader[Any]) -> list[str]:
    """Notes on what the training loader says of its batches and laptime does not do."""
    batches, said = batches_of(loader), []
    sampler: Any = batches.sampler
    if isinstance(sampler, WeightedRandomSampler) and not sampler.replacement:
        said.append(
            "its sampler has no replacement, so it draws each sample once, and laptime draws them without its weights"
        )
    if isinstance(sampler, SequentialSampler):
        said.append("its training loader does not shuffle, and laptime draws the samples in another order each epoch")
    if batches.drop_last and len(sampler) % batches.batch_size > 1:  # one sample is left out anyway
        said.append("the last, smaller batch is trained on, which drop_last leaves out")
    return said
