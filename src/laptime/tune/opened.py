"""What a search stands on, and the moves that it has not decided on."""

from __future__ import annotations

from dataclasses import dataclass

from laptime.records import SearchMove
from laptime.tune.moves import Chosen, Move
from laptime.tune.verdict import LEAST, MOST
from laptime.variants import Variant


@dataclass(frozen=True)
class Best:
    """The best so far.

    Attributes:
        chosen: its list, without what its processes chose by timing.
        variant: what runs, with what its first process chose.
    """

    chosen: Chosen
    variant: Variant


@dataclass(frozen=True)
class Open:
    """A move that is still to be decided on, with what the record will say of it."""

    move: Move
    told: SearchMove

    @property
    def first(self) -> float:
        """The ratio of its first pair, which it has had."""
        assert self.told.first is not None
        return self.told.first

    @property
    def least(self) -> int:
        """Pairs that there must be time for where it is decided on: those that a whole training follows have room."""
        return LEAST if self.move.learns_alike else MOST
