"""One process of a ladder, as what runs a ladder sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["round", "trial", "verify"]


@dataclass(frozen=True)
class Turn:
    """One process of one variant.

    Attributes:
        number: from 1, of `total`, which is an estimate until the first round has settled what stays.
        repeat: the round, from 0, of `repeats`.
        kind: `round` is part of the comparison; `trial` only helps to decide what joins, `verify` tells what a
            finding's remedy brings.
    """

    variant: str
    repeat: int
    number: int
    total: int
    repeats: int
    kind: Kind = "round"

    def __str__(self) -> str:
        """What runs, in words."""
        if self.kind == "trial":
            return f"{self.variant}, trial"
        what = "verification, " if self.kind == "verify" else ""
        return f"{self.variant}, {what}round {self.repeat + 1} of {self.repeats}"
