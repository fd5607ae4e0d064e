"""Batches of a user's own that are read once and kept, for what goes through the same ones again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from laptime.data.own.opened import OwnSplit
from laptime.data.own.refused import only_tensors, same, turned
from laptime.values.draws import drawn, have_drawn, move_on, put_back_drawn
from laptime.values.trees import Tree, mapped

_READ_TWICE = 8


@dataclass(frozen=True)
class KeptSplit(OwnSplit):
    """A part of a user's data of which each batch is read once, where its first items are alike when read twice."""

    kept: dict[tuple[int, ...], Tree] = field(default_factory=dict)

    def batch(self, indices: Sequence[int]) -> Tree:
        """See `OwnSplit`; a copy of what is kept, since a loss may change its batch in place."""
        asked = tuple(indices)
        if not self.steady:
            return super().batch(asked)
        if asked not in self.kept:
            self.kept[asked] = super().batch(asked)
        return mapped(self.kept[asked], torch.clone)

    @cached_property
    def steady(self) -> bool:
        """Whether batches are tensors alone, with the same values each time, and reading them leaves generators alone.

        What is trained behind an evaluation would draw otherwise without that reading. What it draws here is put back.
        """
        few, before = range(min(_READ_TWICE, len(self))), drawn()
        try:
            batch = super().batch(few)
            move_on()
            moved = drawn()
            again = super().batch(few[::-1])
            return only_tensors(batch) and same(turned(again, len(few)), batch) and not have_drawn(moved)
        finally:
            put_back_drawn(before)
