"""What reading some of a user's items leaves behind, so that it matters in which order and by whom others are read."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import nn
from torch.utils.data import IterableDataset

from laptime.data.own.opened import OwnData, OwnSplit
from laptime.data.own.refused import same
from laptime.data.own.workers import inner, item_makers
from laptime.own.user_code import place_in
from laptime.values.draws import State, drawn, moved, put_back_drawn, seeded_by
from laptime.values.tallies import globals_of, numbers_of, put_back_numbers
from laptime.values.trees import mapped, tensors
from laptime.workloads.base import Batch
from laptime.workloads.own import answered, looked_at

_KEPT = (
    "its items keep random numbers that they draw when they are first read (a cache, say), and read in another order, "
    "or by another process, they are others: draw them in data()"
)
_OVERWRITTEN = (
    "each of its batches is written over the one before, into the same memory: let its collate_fn make new tensors"
)
_READ_LAST = (
    "its loss() depends on what was read last (what collate_fn sets, say), which is another batch there: let the batch "
    "hold it"
)
_SEEDED = (
    "its items seed {}, from which its step draws then (dropout, say), and would draw otherwise there: give the items "
    "a generator of their own"
)
_STREAM = (
    "its training data are a stream that has items, too (an IterableDataset), which may give each rank a part of them"
)
# Two losses of the same numbers.
_SAME = 1e-5


def kept_draws(data: OwnData, train: bool, test: bool) -> tuple[dict[str, str], str]:
    """What items leave out that keep what their first reading draws, and what a user must know of it.

    Args:
        data: the user's.
        train: whether training items do, see `first_batch`.
        test: whether test items do.
    """
    if not (train or test):
        return {}, ""
    split = data.train if train else data.test
    place = place_in(data.file, (), (*item_makers(split), split.collate, data.workload.data))
    told = (
        f"items of {data.file.name} draw random numbers when they are first read, and keep them{place}, so that what "
        "they are goes on from the warm-up and depends on the order in which they are read: draw them in data(), or by "
        "a generator that is seeded with the item's number."
    )
    return dict.fromkeys(("resident", "workers", "ddp", "flat-reduce") if train else (), _KEPT), told


def left_behind(data: OwnData, model: nn.Module, count: int) -> dict[str, str]:
    """What a batch leaves out that another reading changes, or a loss that knows what was read last.

    Args:
        data: the user's.
        model: the net, in training mode; it may be called.
        count: samples that are read at a time.
    """
    refused = dict.fromkeys(("resident", "workers", "pinned") if _reads_last(data, model, count) else (), _READ_LAST)
    refused |= dict.fromkeys(("resident", "workers") if _overwritten(data.train, count) else (), _OVERWRITTEN)
    if seeded := _seeded(data, model, count):
        refused |= dict.fromkeys(("resident", "workers", "pinned"), _SEEDED.format(" and ".join(sorted(seeded))))
    return refused | dict.fromkeys(
        ("ddp", "flat-reduce") if isinstance(inner(data.train), IterableDataset) else (), _STREAM
    )


def _ends(split: OwnSplit, count: int) -> tuple[range, range]:
    """The first items and the last ones."""
    return range(count), range(len(split) - count, len(split))


def _overwritten(split: OwnSplit, count: int) -> bool:
    """Whether a batch holds something else once the next one was made."""
    first, last = _ends(split, count)
    before = drawn()
    with suppress(Exception):  # whatever a user's code raises, sometimes: it was read before
        held = tensors(split.batch(first))
        was = [t.clone() for t in held]
        split.batch(last)
        put_back_drawn(before)
        return not same(held, was)
    put_back_drawn(before)
    return False


def _reads_last(data: OwnData, model: nn.Module, count: int) -> bool:
    """Whether the loss of a batch is another once other items were read."""
    split, (first, last) = data.train, _ends(data.train, count)
    before = drawn()
    with suppress(Exception):  # as above
        batch = Batch(mapped(split.batch(first), torch.clone))
        losses = [_loss(data, model, batch, before) for _ in range(2)]
        split.batch(last)
        put_back_drawn(before)
        return _alike(*losses) and not _alike(losses[0], _loss(data, model, batch, before))
    put_back_drawn(before)
    return False


def _seeded(data: OwnData, model: nn.Module, count: int) -> set[str]:
    """Which generators items seed that the loss draws from."""
    split, before = data.train, drawn()
    with suppress(Exception):  # as above
        if found := seeded_by(lambda: split.batch(range(min(2, count)))):
            found &= _passed(data, model, Batch(mapped(split.batch(range(count)), torch.clone)), before)[1]
        put_back_drawn(before)
        return found
    put_back_drawn(before)
    return set()


def _loss(data: OwnData, model: nn.Module, batch: Batch, begin: State) -> float:
    """The loss of a batch, see `_passed`."""
    return _passed(data, model, batch, begin)[0]


def _passed(data: OwnData, model: nn.Module, batch: Batch, begin: State) -> tuple[float, set[str]]:
    """The loss of a batch with the generators where they were, nan where it fails, and those from which it draws.

    What it counts is put back.
    """
    user = data.workload
    held = [*numbers_of(user, model), *globals_of(user, model)]
    put_back_drawn(begin)
    try:
        with looked_at(user):
            loss = answered(user, model, batch, data.file)[0].item()
            return loss, moved(begin, drawn())
    except (Exception, SystemExit):  # whatever a user's code raises, after some steps say: a run tells it
        return torch.nan, set()
    finally:
        put_back_numbers(held)


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME * max(1.0, abs(one))
