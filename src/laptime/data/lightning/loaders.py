"""The loaders of a LightningModule or of its data: what is taken of them, and what laptime's own draw otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from laptime.data.lightning.refused import line_of, overridden
from laptime.errors import UsageError

_TRAINING = "train_dataloader"
# How Lightning goes through several loaders of validation, a CombinedLoader's mode: one after another.
_IN_TURN = "sequential"


class Loaders(NamedTuple):
    """The loaders of a module or its data.

    Attributes:
        train: to train.
        test: to test: that of validation, else that of the test; of several the first.
        notes: on those that are left out.
    """

    train: DataLoader[Any]
    test: DataLoader[Any]
    notes: tuple[str, ...]


def loaders_of(owner: Any, file: Path) -> Loaders:
    """The loaders of a module or its data.

    Raises:
        UsageError: there is none, or one that can't be followed.
    """
    notes: list[str] = []
    train = loader_of(owner, _TRAINING, notes)
    if overridden(owner, "val_dataloader") is None and overridden(owner, "setup") is not None:
        owner.setup("test")
    test = loader_of(owner, "val_dataloader", notes) or loader_of(owner, "test_dataloader", notes)
    if train is None or test is None:
        lacking = "train_dataloader()" if train is None else "val_dataloader() and no test_dataloader()"
        raise UsageError(
            f"{type(owner).__name__} of {file.name} has no {lacking}: add it, or name the LightningDataModule behind "
            f"a comma ({file.name}:Module,Data)."
        )
    return Loaders(train, test, tuple(notes))


def loader_of(owner: Any, name: str, notes: list[str]) -> DataLoader[Any] | None:
    """The loader that a method of the user's gives, None without one; raises UsageError for what can't be followed.

    To `notes` is added what is left out: of several that are gone through one after another all but the first.
    """
    function = overridden(owner, name)
    if function is None:
        return None
    given = getattr(owner, name)()
    several = _several(given)
    where = f"{name}() ({line_of(function)})"
    in_turn = name != _TRAINING and getattr(given, "_mode", _IN_TURN) == _IN_TURN
    found = several[0] if several and in_turn else given
    if not isinstance(found, DataLoader):
        told = f"{where} gives a {type(given).__name__}"
        if any(isinstance(loader, DataLoader) for loader in several):
            raise UsageError(
                f"{told}, so a step gets a batch of each of its loaders ({len(several)}) at once: give one DataLoader "
                "of torch's, of several a data set whose items hold one of each, in the same nesting."
            )
        raise UsageError(f"{told}: give one DataLoader of torch's.")
    if several[1:]:
        notes.append(
            f"{where} gives {len(several)} loaders, and the test is on the first alone: put the one to judge by first"
        )
    if isinstance(found.dataset, IterableDataset):
        raise UsageError(
            f"{where} reads an IterableDataset ({type(found.dataset).__name__}), of which no sample can be drawn "
            "by its number: give it a map-style data set."
        )
    if type(found.batch_sampler) is not BatchSampler:
        raise UsageError(f"{where} has a batch_sampler of its own or none: give the DataLoader a batch_size.")
    _check_sampler(found, name == _TRAINING, where)
    return found


def _several(given: Any) -> list[Any]:
    """The loaders in a list, a dictionary or a CombinedLoader; none of one alone."""
    given = given.iterables if type(given).__name__ == "CombinedLoader" else given
    values = list(given.values()) if isinstance(given, Mapping) else given
    return list(values) if isinstance(values, list | tuple) else []


def _check_sampler(loader: DataLoader[Any], training: bool, where: str) -> None:
    """Raises UsageError for a sampler whose draws can't be followed; `where` names what gave the loader."""
    sampler: Any = batches_of(loader).sampler
    if isinstance(sampler, SubsetRandomSampler):
        raise UsageError(
            f"{where} draws by SubsetRandomSampler, but laptime draws each sample of a loader's data: give it those "
            "alone, DataLoader(Subset(data, indices), …), in place of data and sampler."
        )
    if type(sampler) not in (RandomSampler, SequentialSampler, WeightedRandomSampler):
        raise UsageError(
            f"{where} draws by {type(sampler).__name__}, but laptime draws each sample of a loader's data once an "
            "epoch, or by weights: leave the sampler out where that is meant, else give a Subset of the data, or "
            "torch's WeightedRandomSampler."
        )
    if not training and getattr(sampler, "replacement", False):
        raise UsageError(
            f"{where} draws by {type(sampler).__name__} with replacement, but the test is on each sample once: leave "
            "the sampler out."
        )
    if isinstance(loader.dataset, Sized) and len(sampler) != len(loader.dataset):
        count = len(loader.dataset)
        remedy = "make it of the loader's data without num_samples, and these a Subset where some are meant"
        if isinstance(sampler, WeightedRandomSampler):
            remedy = f"give it a weight for each of them and num_samples={count}"
        raise UsageError(
            f"{where} draws {len(sampler)} of {count} samples by its {type(sampler).__name__}, but laptime draws as "
            f"many as there are: {remedy}."
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


def not_taken(loader: DataLoader[Any], test: DataLoader[Any]) -> list[str]:
    """Notes on what the training loader and that of the test say and laptime does not do."""
    batches, said = batches_of(loader), []
    sampler: Any = batches.sampler
    if isinstance(sampler, WeightedRandomSampler) and not sampler.replacement:
        said.append(
            "its sampler has no replacement, so it draws each sample once, and laptime draws them without its weights"
        )
    if isinstance(sampler, SequentialSampler):
        said.append("its training loader does not shuffle, and laptime draws the samples in another order each epoch")
    if loader.generator is not None or getattr(sampler, "generator", None) is not None:
        said.append("the generator of its training loader draws nothing: the order follows from the run's seed")
    rest = len(sampler) % batches.batch_size if batches.drop_last else 0
    if rest:
        last = "the last, smaller batch is trained on" if rest > 1 else "the last sample joins the batch before it"
        said.append(f"{last}, which drop_last leaves out")
    if fetching := _fetching(loader):
        said.append(
            f"{', '.join(fetching)} of its training loader {'is' if len(fetching) == 1 else 'are'} not taken: the "
            "baseline fetches without workers, and the rungs workers and pinned try what helps"
        )
    return said + _not_tested(test)


def _fetching(loader: DataLoader[Any]) -> list[str]:
    """The arguments of a loader that say how batches are fetched, where they are not the defaults."""
    context: Any = loader.multiprocessing_context
    prefetched = 2 if loader.num_workers else None  # what it has where nothing is said
    given = (
        ("num_workers", loader.num_workers, 0),
        ("pin_memory", loader.pin_memory, False),
        ("pin_memory_device", loader.pin_memory_device, ""),
        ("persistent_workers", loader.persistent_workers, False),
        ("prefetch_factor", loader.prefetch_factor, prefetched),
        ("multiprocessing_context", context and context.get_start_method(), None),
        ("timeout", loader.timeout, 0),
        ("in_order", loader.in_order, True),
    )
    return [f"{name}={value}" for name, value, usual in given if value != usual]


def _not_tested(loader: DataLoader[Any]) -> list[str]:
    """Notes on what the loader of the test says and laptime does not do."""
    batches, said = batches_of(loader), []
    left = len(batches.sampler) % batches.batch_size if batches.drop_last else 0  # type: ignore[arg-type]
    if left:
        said.append(f"the test is on all samples, of which its loader's drop_last leaves {left} out")
    if loader.worker_init_fn is not None:
        said.append("worker_init_fn of its test loader is not called, since test data are read without workers")
    return said
