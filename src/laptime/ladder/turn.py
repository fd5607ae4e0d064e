"""One process of a ladder, or two that take turns, as what runs a ladder sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["round", "trial", "pair", "verify"]


@dataclass(frozen=True)
class Turn:
    """One process of one variant, or of two that train by turns.

    Attributes:
        number: from 1, of `total`, which is an estimate until the first round has settled what stays.
        repeat: the round, from 0, of `repeats`.
        kind: `round` is part of the comparison; `trial` and `pair` only help to decide what joins and stays, `verify`
            tells what a finding's remedy brings.
        beside: of a pair, the variant that it is compared with, which trains by turns with it.
    """

    variant: str
    repeat: int
    number: int
    total: int
    repeats: int
    kind: Kind = "round"
    beside: str = ""

    def __str__(self) -> str:
        """What runs, in words."""
        if self.kind == "pair":
            return f"{self.variant} beside {self.beside}, by turns"
        if self.kind == "trial":
            return f"{self.variant}, trial"
        what = "verification, " if self.kind == "verify" else ""
        return f"{self.variant}, {what}round {self.repeat + 1} of {self.repeats}"
