"""How many epochs a process counts: short ones scatter more, and cost little beside the start of their process."""

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


def epochs_of(record: RunRecord) -> int:
    """Counted epochs of a process that tells a time as well as seconds can, by what they take in a record."""
    if record.status != "done" or not record.kept:
        return SHORT
    fastest = min(epoch.epoch_s + (epoch.evaluate_s or 0.0) for epoch in record.kept)
    return min(MOST_EPOCHS, max(SHORT, math.ceil(_TRAINS_S / fastest)))


def short(ladder: Ladder) -> int:
    """Counted epochs of a process of a ladder that only tells a time: by what the baseline's first one took."""
    return _more(SHORT, ladder.runs[0]) if ladder.runs else SHORT


def are_open(request: LadderRequest) -> bool:
    """Whether the baseline's first process decides how many epochs count: nobody has asked for a number.

    A search compares by pairs, which count as many as they need, and its budget has other uses.
    """
    return request.epochs is None and request.budget is None


def settle(ladder: Ladder) -> bool:
    """Settles how many epochs the ladder's processes count, once the baseline's first one has ended.

    Returns:
        Whether they are more than it counted, so that it is to be run again.
    """
    if not are_open(ladder.request):
        return False
    asked, (first,) = ladder.preset.epochs, ladder.runs
    enough = _more(asked, first)
    if enough > asked:
        ladder.preset = replace(ladder.preset, epochs=enough)
        ladder.record = ladder.record.model_copy(update={"epochs": enough})
        ladder.say(f"An epoch is short, so that each process counts {enough} in place of {asked} (--epochs N decides).")
    if ladder.journal is not None:  # params that were open at the start
        ladder_started(ladder.journal, ladder.record, ladder.folder)
    return enough > asked


def _more(usual: int, record: RunRecord) -> int:
    enough = epochs_of(record)
    return enough if enough > _WORTH_IT * usual else usual
