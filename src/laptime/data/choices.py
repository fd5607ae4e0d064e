"""What stands behind the place of data: `DIR#bands=8,4,3`, `DIR#size=96#seed=3`, `DIR#boxes=labels.csv#side=800`.

It stands there, and not in options of its own, so that it travels wherever the place does: command line, flow, record.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from laptime.errors import UsageError, shorten
from laptime.spec import DataSpec

BANDS, SIZE, SEED, BOXES, SIDE = "#bands=", "#size=", "#seed=", "#boxes=", "#side="
ALL = (BANDS, SIZE, SEED, BOXES, SIDE)
NO_PLACES = ("auto", "official", "synthetic")
_MOST_SEED = 2**32 - 1
_LEAST_SIDE, _MOST_SIDE = 8, 2048

Size = tuple[int, int]
"""Height and width."""


def split_choices(asked: str, taken: tuple[str, ...] = ALL, instead: str = "") -> tuple[str, dict[str, str]]:
    """Cuts what `--data` was given into the place and what is chosen behind it, by the marks above.

    Args:
        asked: as the user wrote it.
        taken: the marks that this kind of data takes.
        instead: what the message says of another one.

    Raises:
        UsageError: one is for other data, or stands twice.
    """
    place, *more = re.split("(" + "|".join(ALL) + ")", asked)
    given = dict(zip(more[::2], more[1::2], strict=True))
    other = next((mark for mark in given if mark not in taken), None)
    if other:
        raise UsageError(f"{other} in {shorten(asked)!r} is not for {instead}: leave it out.")
    twice = next((mark for mark in given if more.count(mark) > 1), None)
    if twice:
        raise UsageError(f"{twice} stands more than once in {shorten(asked)!r}: give it once.")
    return place, given


def place_called(asked: str) -> str:
    """What the user's own folder, archive or address is called in a title: its last part, without what stands behind.

    Empty where it is laptime's own data (`auto`, `official`, `synthetic`), a store, or a path without a name.
    """
    place = re.split("|".join(ALL), asked)[0]
    if "://" in place:
        place = place.partition("?")[0].rpartition("@")[2]  # neither signatures nor logins
    name = PurePosixPath(place.rstrip("/")).name
    unnamed = place in NO_PLACES or name in ("", ".", "..", "~") or re.fullmatch("[0-9a-f]{64}", name)
    return "" if unnamed else shorten(name, 60)


def called(data: DataSpec) -> str:
    """What the user calls the data in a store; empty where they are the workload's usual ones, or a training's own."""
    return place_called(data.asked) if data.kind == "folder" else ""


def read_size(text: str | None) -> Size | None:
    """The size that is asked for, None where none is; raises UsageError for what is no size."""
    if text is None:
        return None
    width, cross, height = text.partition("x")
    sides = [int(side) for side in (width, height if cross else width) if side.isascii() and side.isdigit()][:2]
    if len(sides) != 2 or len(text) > 9 or not all(_LEAST_SIDE <= side <= _MOST_SIDE for side in sides):
        raise UsageError(
            f"{shorten(text)!r} behind {SIZE} is no size: give {_LEAST_SIDE} to {_MOST_SIDE} pixels, such as #size=96, "
            "or width x height, such as #size=96x64."
        )
    return (sides[1], sides[0])


def read_seed(text: str | None) -> int:
    """The seed of the split into training and test, 0 where none is given; raises UsageError."""
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _MOST_SEED):
        raise UsageError(f"{shorten(text)!r} behind {SEED} is no seed: give a whole number from 0 to {_MOST_SEED}.")
    return int(text)
