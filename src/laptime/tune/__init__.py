"""The search for the fastest variant within a budget; a ladder that has one is led by it. Never reaches torch."""

from __future__ import annotations

from laptime.ladder.run import Ladder
from laptime.tune.foresight import foreseen, too_short
from laptime.tune.search import Search

__all__ = ["Search", "foreseen", "led", "too_short"]


def led(ladder: Ladder, warned: bool = False) -> Ladder:
    """A ladder whose first round is a search where its request has a budget; any other as it is.

    Args:
        ladder: it.
        warned: whether it has been said that the budget is too small.
    """
    if ladder.request.budget is not None:
        ladder.lead = lambda it: Search(it, warned).turns()
    return ladder
