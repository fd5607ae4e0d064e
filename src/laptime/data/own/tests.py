"""Test data that are others at each reading, by which a training is judged all the same."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch.utils.data import default_collate

from laptime.data.lightning.module import LightningWorkload
from laptime.data.own.opened import OwnData, OwnSplit
from laptime.data.own.refused import same
from laptime.data.own.workers import item_makers
from laptime.own.user_code import place_in
from laptime.values.draws import fetched
from laptime.values.trees import Tree, mapped

# Mixed samples are hardly ever alike; what is left alone every other time may be so twice.
_READINGS = 3


@torch.no_grad()  # as in an evaluation, since a collate_fn may mix where gradients are wanted
def varying(data: OwnData, count: int) -> str:
    """Says that the first test items come as another batch when they are read again; empty where they don't.

    Whoever mixes samples in the collate_fn has a loader of its own for the test elsewhere, and one collate_fn here.

    Args:
        data: the user's.
        count: how many items are read.
    """
    split, chosen = data.test, range(count)
    with suppress(Exception):  # whatever a user's code raises, sometimes: it was read before
        batch = split.batch(chosen)
        if all(same(split.batch(chosen), batch) for _ in range(_READINGS)):
            return ""
        items = _alone(split, chosen)
        steady = all(same(_alone(split, chosen), items) for _ in range(_READINGS))
        said = f"test data of {data.file.name} are others when they are read again"
        if not steady:
            return f"{said}{place_in(data.file, (), (*item_makers(split),))}: what is judged depends on what they draw."
        remedy = "the workload a test_collate_fn for them, staticmethod(torch.utils.data.default_collate) say"
        if isinstance(data.workload, LightningWorkload):
            remedy = "their loader a collate_fn of its own, torch.utils.data.default_collate say"
        place = place_in(data.file, (), (split.collate,))
        return f"{said}, since collate_fn draws for them, too{place}: give {remedy}."
    return ""


def _alone(split: OwnSplit, chosen: Sequence[int]) -> Tree:
    """Items in new tensors, whatever the user makes batches of: arrays and views of the data set's memory, too."""
    items = fetched(split.dataset, chosen)
    try:
        return default_collate(items)
    except Exception:  # items that torch makes no batch of
        return mapped(items, torch.clone)
