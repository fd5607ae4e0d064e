"""The split of images that come without one: four fifths to train on, one to test on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from laptime.data.choices import SEED

_TEST_SHARE = 5


def parted(names: Sequence[str], seed: int) -> tuple[list[str], list[str]]:
    """Names to train and to test on, each sorted; a name that is alone trains.

    By a hash of seed and name, so that an image stays on its side when others are added. Seed 0 is the hash of the name
    alone.
    """
    before = f"{seed}\0" if seed else ""
    mixed = sorted(names, key=lambda n: hashlib.sha256(f"{before}{n}".encode(errors="surrogateescape")).digest())
    cut = max(1, round(len(mixed) / _TEST_SHARE)) if len(mixed) > 1 else 0
    return sorted(mixed[cut:]), sorted(mixed[:cut])


def in_words(seed: int) -> str:
    """How the test was chosen."""
    return f"by seed {seed}" if seed else f"always the same ({SEED}1 behind the place of the data chooses another)"
