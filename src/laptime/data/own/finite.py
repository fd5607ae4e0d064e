"""Values of a user's samples that are no finite numbers, and the items that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laptime.data.own.begun import Limited
from laptime.data.own.opened import OwnData, OwnSplit
from laptime.own.user_code import place_in
from laptime.values.trees import Tree, tensors

# As many of the first samples are known to give a loss that is a number: the look before a ladder trains on them.
_KNOWN = 8
_MOST_NAMED = 5

Held = set[tuple[int, str]]
"""By which tensor of a batch it is: `nan` or `inf`."""


@dataclass(frozen=True)
class Unfinite:
    """What of a batch is no finite number.

    Attributes:
        values: `nan`, `inf`, or `nan and inf`; empty where all are finite.
        items: whose they are, by their numbers in the user's data set; empty where no item can be read alone.
    """

    values: str = ""
    items: tuple[int, ...] = ()

    @property
    def told(self) -> str:
        """What it is and where, `nan in items 3, 17`."""
        more = f" and {len(self.items) - _MOST_NAMED} more" if len(self.items) > _MOST_NAMED else ""
        named = ", ".join(map(str, self.items[:_MOST_NAMED])) + more
        return f"{self.values} in item{'s' * (len(self.items) > 1)} {named}" if self.items else self.values

    def remedy(self, data: OwnData) -> str:
        """What helps, with the line that gives the data."""
        return f"leave that out in data(){place_in(data.file, (), (data.workload.data,))}, or fill it in"


def unfinite(split: OwnSplit, indices: Sequence[int], known: bool = True) -> Unfinite:
    """What of a batch of some items is no finite number, read once more.

    What no item holds by itself is the collate_fn's, a mask of padding perhaps, and no fault of the data.

    Args:
        split: of the user's data.
        indices: of the batch.
        known: whether to pass over what the first samples hold, too: it is known that a loss goes with that.
    """
    try:
        usual = _held(split.batch(range(min(_KNOWN, len(split))))) if known else Held()
        found = _held(split.batch(indices)) - usual
    except Exception:  # whatever a user's code raises: a second reading tells nothing then
        return Unfinite()
    if not found:
        return Unfinite()
    try:
        mine = {index: held for index in indices if (held := _held(split.batch([index])) & found)}
    except Exception:  # a collate_fn that makes no batch of one, say
        return Unfinite(_named(found))
    return Unfinite(_named(Held().union(*mine.values())), tuple(_number(split, index) for index in mine))


def _named(held: Held) -> str:
    return " and ".join(sorted({name for _, name in held}, reverse=True))


def _held(batch: Tree) -> Held:
    return {(place, name) for place, tensor in enumerate(tensors(batch)) for name in _names(tensor)}


def _names(tensor: Tensor) -> list[str]:
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout != torch.strided:
        return []
    return [name for name, has in (("nan", tensor.isnan()), ("inf", tensor.isinf())) if has.any()]


def _number(split: OwnSplit, index: int) -> int:
    """The number of an item in the data set as the user gave it, of which a limit may keep a part."""
    return int(split.dataset.indices[index]) if isinstance(split.dataset, Limited) else index
