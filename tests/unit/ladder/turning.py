"""Takes a ladder through its turns, as the command line does."""

from __future__ import annotations

from laptime.ladder import Ladder
from laptime.launchers.base import Hooks


def through(ladder: Ladder) -> list[str]:
    """Runs every turn and lets the journal go; what ran, in words."""
    try:
        return turned(ladder)
    finally:
        assert ladder.journal is not None
        ladder.journal.close()


def turned(ladder: Ladder) -> list[str]:
    """Runs every turn; what ran, in words."""
    told = []
    for turn in ladder.turns():
        told.append(str(turn))
        ladder.run(turn, Hooks())
    return told
