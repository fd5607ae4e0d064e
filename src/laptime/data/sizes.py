"""To which height and width images are brought where the user says: `DIR#size=96` or `DIR#size=96x64` (width x height).

As with bands, the choice stands behind the place, so that it travels wherever the place does.
"""

from __future__ import annotations

from laptime.errors import UsageError, shorten

Size = tuple[int, int]
"""Height and width."""

# Larger photographs are resized unless a size is given: a store holds every pixel, and a small net sees most of them
# at full depth.
LARGEST_KEPT = 256
MARK = "#size="
_LEAST, _MOST = 8, 2048


def split_size(asked: str) -> tuple[str, Size | None]:
    """Cuts what `--data` was given into the place and the size, None where none is given.

    Raises:
        UsageError: it is no size.
    """
    place, mark, text = asked.rpartition(MARK)
    if not mark:
        return asked, None
    width, cross, height = text.partition("x")
    sides = [int(side) for side in (width, height if cross else width) if side.isascii() and side.isdigit()][:2]
    if len(sides) != 2 or len(text) > 9 or not all(_LEAST <= side <= _MOST for side in sides):
        raise UsageError(
            f"{shorten(text)!r} behind {MARK} is no size: give {_LEAST} to {_MOST} pixels, such as #size=96, or "
            "width x height, such as #size=96x64."
        )
    return place, (sides[1], sides[0])
