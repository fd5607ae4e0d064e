"""A process that was tried again in a ladder that is gone on with: a run's curves stay, so it has a run of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laptime.records import LadderRecord, RunRecord
from laptime.tracking.events import Measured, read_journal
from laptime.tracking.journal import Journal
from laptime.tracking.publish import process_recorded, variant_key, variant_retracted
from laptime.tracking.rows import TIMED, curves


def process_told(
    journal: Journal, ladder: LadderRecord, records: Sequence[RunRecord], folder: Path, again: bool
) -> LadderRecord:
    """Tells the last of a variant's processes so far, see `process_recorded`.

    Where the journal holds epochs of an earlier try of it, their run is taken back, and a new one is told of all
    processes: in one run both tries would stand at each step of its curves.

    Args:
        journal: where to.
        ladder: the ladder.
        records: what the processes of one of its variants produced, in the order of their repeats.
        folder: the ladder's folder.
        again: whether the ladder is gone on with, so that there may be an earlier try.

    Returns:
        The ladder, in which such a try is counted.
    """
    first, variant = len(records), records[-1].spec.variant if records[-1].spec else ""
    rung = next(r for r in ladder.rungs if r.variant == variant)
    if again and _told_otherwise(journal.path, ladder, records[-1], variant):
        variant_retracted(journal, ladder, variant)
        count = ladder.retried.get(variant, 0) + 1
        ladder, first = ladder.model_copy(update={"retried": {**ladder.retried, variant: count}}), 1
    for number in range(first, len(records) + 1):
        process_recorded(journal, ladder, rung, records[:number], folder)
    return ladder


def _told_otherwise(journal: Path, ladder: LadderRecord, record: RunRecord, variant: str) -> bool:
    """Whether the journal holds other epochs of this process than its record; those before a break are the same."""
    key = variant_key(ladder, variant)
    now = {row.step: row.at for row in curves(ladder, [record]) if row.name == TIMED}
    told = [event.rows for event in read_journal(journal)[1] if isinstance(event, Measured) and event.key == key]
    return any(name == TIMED and now.get(step, at) != at for rows in told for name, _, step, at in rows)
