"""The height and width of images where the user says: `DIR#size=96` or `DIR#size=96x64` (width x height)."""

from __future__ import annotations

from laptime.data.choices import SIZE as MARK
from laptime.errors import UsageError, shorten

Size = tuple[int, int]
"""Height and width."""

# Larger photographs are resized unless a size is given: a store holds every pixel, and a small net sees most of them
# at full depth.
LARGEST_KEPT = 256
_LEAST, _MOST = 8, 2048


def chosen_size(text: str | None) -> Size | None:
    """The size that is asked for, None where none is; raises UsageError for what is no size."""
    if text is None:
        return None
    width, cross, height = text.partition("x")
    sides = [int(side) for side in (width, height if cross else width) if side.isascii() and side.isdigit()][:2]
    if len(sides) != 2 or len(text) > 9 or not all(_LEAST <= side <= _MOST for side in sides):
        raise UsageError(
            f"{shorten(text)!r} behind {MARK} is no size: give {_LEAST} to {_MOST} pixels, such as #size=96, or "
            "width x height, such as #size=96x64."
        )
    return (sides[1], sides[0])
