"""One process of a ladder, or two that take turns, as what runs a ladder sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

Kind = Literal["round", "trial", "search", "verify", "training"]
_Side = TypeVar("_Side")


@dataclass(frozen=True)
class Turn:
    """One process of one variant, or of two that train by turns.

    Attributes:
        number: from 1, of `total`, which is an estimate until the first round has settled what stays.
        repeat: the round, from 0, of `repeats`.
        kind: `round` is part of the comparison; `trial` only helps to decide what joins and stays, `search` what a
            search adopts; `verify` tells what a finding's remedy brings, and `training` at what quality, by all epochs:
            a remedy's, a search's change, a rung's of another seed.
        beside: of two processes, the variant that this one is compared with and that trains by turns with it.
        epochs: counted epochs of a process of a search, or of a pair that is to tell more; 0 for those of its kind.
    """

    variant: str
    repeat: int
    number: int
    total: int
    repeats: int
    kind: Kind = "round"
    beside: str = ""
    epochs: int = 0

    def __str__(self) -> str:
        """What runs, in words."""
        together = f" beside {self.beside}, by turns" if self.beside else ""
        if self.kind == "trial":
            return f"{self.variant}{together or ', trial'}"
        if self.kind == "search":
            return f"{self.variant}{together}, search"
        if self.kind == "training":
            of = ", of another seed" if self.repeat else ""
            return f"{self.variant}, a whole training for its quality{of}"
        what = "verification, " if self.kind == "verify" else ""
        return f"{self.variant}{together}, {what}round {self.repeat + 1} of {self.repeats}"


def in_round(sides: Iterable[_Side], place: int) -> list[_Side]:
    """What a round (from 0) takes one after the other: every other round from the end.

    A machine that slows down all the while is then no more against the last than against the first.
    """
    order = list(sides)
    return order if place % 2 == 0 else order[::-1]
