"""Items of a user's own as batches, for the look before a ladder: what makes none is told with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from laptime.data.own.importing import told_with_line
from laptime.data.own.opened import OwnData, OwnSplit
from laptime.data.own.refused import miscounted
from laptime.data.own.workers import item_makers, read_together
from laptime.errors import RunError
from laptime.own.user_code import place_in
from laptime.values.draws import drawn, fetched, have_drawn, put_back_drawn
from laptime.values.trees import Tree, leaves, movable, samples, tensors


def first_batch(data: OwnData, split: OwnSplit, indices: Sequence[int]) -> tuple[Tree, bool]:
    """See `batch_of`, of items that nobody has read; and whether they keep what they have drawn.

    With the same generators the first reading moves one then, and another reading none.
    """
    before = drawn()
    batch = batch_of(data, split, indices)
    return batch, have_drawn(before) and _quiet(split, indices, before)


def _quiet(split: OwnSplit, indices: Sequence[int], begin: dict[str, Any]) -> bool:
    """Whether reading items draws no random numbers from here on."""
    kept = drawn()
    put_back_drawn(begin)
    try:
        split.batch(indices)
        return not have_drawn(begin)
    except Exception:  # whatever a user's code raises, sometimes: it was read before
        return False
    finally:
        put_back_drawn(kept)


def batch_of(data: OwnData, split: OwnSplit, indices: Sequence[int]) -> Tree:
    """Items as a batch, each in the user's own place; raises RunError naming what does not fit."""
    which = "training" if split is data.train else "test"
    read: list[Any] = []
    together = read_together(split)
    for some in [list(indices)] if together else [[index] for index in indices]:
        reading = f"reading items {some} at once" if together else f"reading item {some[0]}"
        with told_with_line(f"{reading} of the {which} data", data.file, *item_makers(split), item=together):
            read.append(fetched(split.dataset, some))
    items = read[0] if together else [item for some in read for item in some]
    # What is read at once may be a batch already.
    by_item = items if isinstance(items, list) and len(items) == len(indices) else []
    shapes = [[tuple(t.shape) for t in tensors(item)] for item in by_item]
    try:
        making = f"making a batch of {len(indices)} items of the {which} data"
        with told_with_line(making, data.file, split.collate, *item_makers(split), data.workload.data):
            found = split.collate(items)
    except RunError as error:
        other = next((i for i, s in enumerate(shapes) if s != shapes[0]), None)
        if other is None or hasattr(data.workload, "collate_fn"):
            raise
        raise RunError(
            f"items 0 and {indices[other]} of the {which} data of {data.file.name} have shapes {shapes[0]} and "
            f"{shapes[other]}, which make no batch{_made(data, split)}: bring them to one shape, or give the workload "
            "a collate_fn."
        ) from error
    said = f"a batch of {len(indices)} item{'s' * (len(indices) > 1)} of the {which} data of {data.file.name}"
    if not tensors(found) and not any(map(movable, leaves(found))):
        raise RunError(
            f"{said} is a {type(found).__name__} in which no tensor is found{_made(data, split)}: make it of tensors "
            "in tuples, lists, dictionaries or dataclasses, or give its class a method to(device)."
        )
    if any(tensor.is_nested for tensor in tensors(found)):
        raise RunError(
            f"{said} holds a nested tensor{_made(data, split)}, whose samples can't be taken out of it: let collate_fn "
            "give a list of the samples behind torch.arange(len(items)), and loss() make the nested tensor of it."
        )
    if samples(found) != len(indices):
        seen, remedy = miscounted(found, split.collate, dict(zip(indices, by_item, strict=False)))
        raise RunError(f"{said} {seen}{_made(data, split)}: {remedy}.")
    return found


def _made(data: OwnData, split: OwnSplit) -> str:
    """The line of the user's that makes batches, items or the data, whichever is theirs."""
    return place_in(data.file, (), (split.collate, *item_makers(split), data.workload.data))


def others_of(data: OwnData, split: OwnSplit, count: int) -> Iterator[Tree]:
    """A batch of the middle of a part of the data, and one of its end."""
    whole = len(split)
    return (batch_of(data, split, range(begin, begin + count)) for begin in ((whole - count) // 2, whole - count))
