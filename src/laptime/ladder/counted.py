"""How many epochs a process counts, and how many rounds a ladder runs: short ones scatter more, and cost little."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from laptime.records import RunRecord
from laptime.tracking.publish import ladder_started

if TYPE_CHECKING:
    from laptime.ladder.request import LadderRequest
    from laptime.ladder.run import Ladder

# Counted epochs of a process that only tells a time, at least.
SHORT = 2
# A process takes up to eight seconds to start: it trains for half as long, or for as many epochs.
_TRAINS_S = 4.0
MOST_EPOCHS = 12
# The baseline's process is run again only for more than so many times as many epochs: where those asked for take less.
_WORTH_IT = 2
WORTH_S = _TRAINS_S / _WORTH_IT
# Where the baseline's first turn, which profiles too, takes no longer, there are so many times as many rounds.
SHORT_TURN_S = 5.0
ROUNDS_MORE = 2


def epochs_of(record: RunRecord) -> int:
    """Counted epochs of a process that tells a time as well as seconds can, by what they take in a record."""
    if record.status != "done" or not record.kept:
        return SHORT
    fastest = min(epoch.epoch_s + (epoch.evaluate_s or 0.0) for epoch in record.kept)
    return min(MOST_EPOCHS, max(SHORT, math.ceil(_TRAINS_S / fastest)))


def short(ladder: Ladder) -> int:
    """Counted epochs of a process of a ladder that only tells a time: by what the baseline's first one took."""
    return _more(SHORT, ladder.runs[0]) if ladder.runs else SHORT


def epochs_are_open(request: LadderRequest) -> bool:
    """Whether the baseline's first process decides how many epochs count: nobody has asked for a number.

    A search compares by pairs, which count as many as they need, and its budget has other uses.
    """
    return request.epochs is None and request.budget is None


def rounds_are_open(request: LadderRequest) -> bool:
    """Whether the baseline's first turn decides how many rounds there are."""
    return request.repeats is None and request.budget is None


def are_open(request: LadderRequest) -> bool:
    """Whether something is that the ladder's own run in the store tells as a param."""
    return epochs_are_open(request) or rounds_are_open(request)


def settle(ladder: Ladder) -> bool:
    """Settles how many epochs and rounds the ladder counts, once the baseline's first turn has ended.

    Returns:
        Whether epochs are more than it counted, so that it is to be run again.
    """
    if not are_open(ladder.request):
        return False
    if rounds_are_open(ladder.request):
        _settle_rounds(ladder)
    again = epochs_are_open(ladder.request) and _settle_epochs(ladder)
    if ladder.journal is not None:  # params that were open at the start
        ladder_started(ladder.journal, ladder.record, ladder.folder)
    return again


def _settle_rounds(ladder: Ladder) -> None:
    """Processes of one variant differ by several percent, which more epochs of each do not show."""
    usual, (first,) = ladder.preset.repeats, ladder.runs
    if usual == 1 or first.status != "done" or ladder.record.turns_s[0] > SHORT_TURN_S:
        return
    rounds = ROUNDS_MORE * usual
    ladder.preset = replace(ladder.preset, repeats=rounds)
    ladder.record = ladder.record.model_copy(update={"repeats": rounds})
    ladder.say(f"A process is short, so that there are {rounds} rounds in place of {usual} (--repeats N decides).")


def _settle_epochs(ladder: Ladder) -> bool:
    asked, (first,) = ladder.preset.epochs, ladder.runs
    enough = _more(asked, first)
    if enough == asked:
        return False
    ladder.preset = replace(ladder.preset, epochs=enough)
    ladder.record = ladder.record.model_copy(update={"epochs": enough})
    ladder.say(f"An epoch is short, so that each process counts {enough} in place of {asked} (--epochs N decides).")
    return True


def _more(usual: int, record: RunRecord) -> int:
    enough = epochs_of(record)
    return enough if enough > _WORTH_IT * usual else usual
