"""Which images are trained and which are tested on: four fifths and one where they come without a split."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from laptime.data.choices import SEED
from laptime.errors import shorten

_TEST_SHARE = 5


def parted(names: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """Names to train and to test on, each sorted; a name that is alone trains."""
    order, cut = mixed(names, seed), tested(len(names))
    return sorted(order[cut:]), sorted(order[:cut])


def mixed(names: Sequence[str], seed: int) -> list[str]:
    """The order in which names go to the test.

    By a hash of seed and name, so that an image stays on its side when others are added. Seed 0 is the hash of the name
    alone.
    """
    before = f"{seed}\0" if seed else ""
    return sorted(names, key=lambda n: hashlib.sha256(f"{before}{n}".encode(errors="surrogateescape")).digest())


def tested(count: int) -> int:
    """How many of some names are for the test."""
    return max(1, round(count / _TEST_SHARE)) if count > 1 else 0


def in_words(seed: int) -> str:
    """How the test was chosen."""
    return f"by seed {seed}" if seed else f"always the same ({SEED}1 behind the place of the data chooses another)"


def both_sides(names: Sequence[str]) -> str:
    """A sentence for images of the test that are the same as images of the training; empty where there are none."""
    if not names:
        return ""
    return f"{len(names)} image(s) of the test, {shorten(names[0])} among them, are in the training, too."
