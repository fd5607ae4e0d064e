"""From where on a baseline has learnt enough to lose something: nothing is kept of what was never there."""

from __future__ import annotations

import math

from laptime.catalogue import WORKLOADS

# With more classes than these the way from chance to perfect is measured in what the answers tell of the classes.
_FEW_CLASSES = 10
# Halvings of an interval of 1 until it is as narrow as a float can say.
_HALVINGS = 60


def chance_of(workload: str, classes: int, commonest: float = 0.0) -> float:
    """The accuracy of whoever has learnt nothing but which class is the commonest.

    Args:
        workload: boxes are not found by chance.
        classes: how many there are; 0 where unknown.
        commonest: share of the test samples that the largest class has; 0 where unknown, then all are alike.
    """
    entry = next((w for w in WORKLOADS if w.name == workload), None)
    return max(1 / classes, commonest) if classes and not (entry and entry.boxes) else 0.0


def quality_floor(workload: str, classes: int, commonest: float = 0.0) -> float:
    """The quality below which a baseline is none to judge variants beside: a share of the way from chance to perfect.

    With more than ten classes half of the way is far to go: who is right in 40 % of cases among a thousand classes
    knows more than who is right in 55 % among ten. There the floor is where the answers tell as large a share of all
    that is to be known as they do with ten classes at theirs (see `_told`). The arguments are those of `chance_of`.
    """
    entry = next((w for w in WORKLOADS if w.name == workload), None)
    share = entry.floor_over_chance if entry else 0.0
    if not share:
        return 0.0
    chance = chance_of(workload, classes, commonest)
    half = _on_the_way(chance, share)
    if not 0 < chance < 1 / _FEW_CLASSES:
        return half
    few = 1 / _FEW_CLASSES
    asked, low, high = _told(_on_the_way(few, share), few), chance, half
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _told(middle, chance) < asked else (low, middle)
    return high


def _on_the_way(chance: float, share: float) -> float:
    return chance + share * (1 - chance)


def _told(right: float, chance: float) -> float:
    """What answers tell of the classes, as a share of all that there is to know, where `right` of them are right.

    Their distance from guessing, sum p log(p / c) over right and wrong (Kullback and Leibler 1951; with alike classes
    and wrong answers that are spread evenly it is the bits an answer brings, Wolpaw 1998), over that of perfect ones.
    """
    wrong = (1 - right) * math.log((1 - right) / (1 - chance))
    return (right * math.log(right / chance) + wrong) / -math.log(chance)
