"""One variant beside another: two processes next to each other in time, and the ratio of their epochs."""

from __future__ import annotations

from collections.abc import Generator
from statistics import median

from laptime.ladder.climb import Both, ratio_of
from laptime.ladder.pairs import can_take_turns
from laptime.ladder.run import Ladder
from laptime.ladder.turn import Turn
from laptime.records import RunRecord
from laptime.variants import Variant


def beside(
    ladder: Ladder, sides: tuple[Variant, Variant], place: tuple[int, int], epochs: int
) -> Generator[Turn, None, Both]:
    """One process each, by turns where that can be; else one after the other, every other pair backwards.

    Args:
        ladder: whose turns they are.
        sides: what the candidate is compared with, and the candidate.
        place: how many pairs they have had, and about how many turns are still to come.
        epochs: that are counted, of each.

    Returns:
        Their records, the best's first.
    """
    (best, candidate), forward = sides, place[0] % 2 == 0
    if can_take_turns(ladder, best, candidate):
        yield ladder.search(candidate, place, epochs, beside=best)
        first, second = ladder.trials[-2:]
        # Two that did not take turns after all: the next ones run one after the other.
        if second.beside or second.status != "done" or first.status != "done":
            return first, second
    for variant in (best, candidate) if forward else (candidate, best):
        yield ladder.search(variant, place, epochs)
    first, second = ladder.trials[-2:]
    return (first, second) if forward else (second, first)


def ratio_between(first: RunRecord, second: RunRecord) -> float | None:
    """The second's epoch over the first's; None where one has no time."""
    if not all(r.status == "done" and r.laps for r in (first, second)):
        return None
    return ratio_of((first, second)) or median(second.laps) / median(first.laps)


def why_without(first: RunRecord, second: RunRecord) -> str:
    """Why two processes have no ratio."""
    broken = next((r for r in (second, first) if r.status != "done"), None)
    return f"{broken.status}: {broken.error}" if broken else "no epoch was kept, since each of them compiled anew"
