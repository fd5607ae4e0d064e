"""What a search within a budget tried, in words."""

from __future__ import annotations

from laptime.compare import words
from laptime.compare.statistics import Estimate, mean_ratio
from laptime.records import SearchMove, SearchRecord

TITLE = "What the search tried"
LEAD = (
    "Each change was measured beside the best list so far, by pairs of processes that ran next to each other, on a CPU "
    "an epoch of one and then of the other. Times as long: seconds of an epoch with the change over those without. The "
    "first pair only says what deserves more; a change stays where the whole interval of those is below 1, and where "
    "it changes what is learnt, if a whole training is as good as the baseline's: what seems less good and is unclear "
    "has more, of up to three seeds, and stays where its mean is not lower by more than a point (of a loss, a "
    "percent). These figures chose, so the best of them are too good by chance; what was found was measured again by "
    "pairs that chose nothing."
)
HEADER = ("change", "class", "promised", "first pair", "times as long", "verdict")


def cells(move: SearchMove) -> list[str]:
    """A change as the words of a table's row."""
    promised = ""
    if move.predicted is not None:
        low, high = (_three(1 - share) for share in reversed(move.predicted))
        promised = f"{low}–{high}"
    outcome = "kept" if move.adopted else move.outcome
    first = words.NONE if move.first is None else _three(move.first)
    verdict = f"{outcome}: {move.reason}" if move.reason else outcome
    return [move.change, move.klass, promised, first, _times(move), verdict]


def _times(move: SearchMove) -> str:
    if not move.ratios:
        return words.NONE
    found = mean_ratio(move.ratios)
    return f"{_three(found.point)} ({_between(found)}n = {found.n})"


def _between(found: Estimate) -> str:
    return "" if found.low is None or found.high is None else f"{_three(found.low)}–{_three(found.high)}, "


def _three(value: float) -> str:
    """Changes of a percent are at stake."""
    return f"{value:.3f}"


def sentences(search: SearchRecord) -> list[str]:
    """What came of a search: what it found beside where it began, how to run that, and why it ended."""
    if not search.start:
        return [f"No search: {search.ended or 'it was broken off before it began'}."]
    told = []
    kept = sum(move.adopted for move in search.moves)
    if search.variant and search.confirmed:
        found = mean_ratio(search.confirmed)
        shown = found.high is not None and found.high < 1
        told.append(
            f"{search.variant} takes {_three(found.point)} times as long as {search.start}, where the search began "
            f"({_between(found)}n = {found.n}, pairs that chose nothing){'' if shown else ': not shown to be faster'}."
        )
    elif search.variant:
        told.append(f"{search.variant}, which it found, has not been measured beside {search.start}.")
    elif kept:
        told.append("The search was broken off before what it had kept ran as a variant of its own.")
    else:
        told.append(_nothing(search))
    if search.list:
        told.append(f"To run it anywhere: --variant {search.list}")
    told += _ended(search, kept)
    if search.start_quality:
        told.append(f"Quality of where it could begin: {search.start_quality}.")
    if search.unjudged:
        told.append(f"Not tried, since quality can't be judged here: {', '.join(search.unjudged)}.")
    return told


def _nothing(search: SearchRecord) -> str:
    if not search.moves:
        return f"The search began with {search.start}, and tried no change of it."
    return f"The search found nothing that is shown to be faster than {search.start}."


def _ended(search: SearchRecord, kept: int) -> list[str]:
    """How far it came and why no further; where time stayed unused, what it had been for."""
    ended = search.ended or "it was broken off"
    left = f"; not tried: {', '.join(search.untried)}" if search.untried else ""
    unit, unit_s = ("s", 1.0) if search.budget_s < 100 else ("minutes", 60.0)
    told = (
        f"{words.plural(len(search.moves), 'change') or 'No change'} tried in {search.spent_s / unit_s:.1f} of "
        f"{search.budget_s / unit_s:.1f} {unit}, {kept} kept; it ended since {ended}{left}."
    )
    unused = (
        "What was left is mostly time for pairs that measure again what a search keeps: it kept nothing, so that "
        "stayed unused, and a larger --budget tries more."
    )
    return [told, unused] if search.untried and search.moves and search.ended and not kept else [told]
