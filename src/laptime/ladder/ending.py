"""A ladder's end in the journal: each variant with all its processes, what advice brought, the parent run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laptime.compare.markdown import to_markdown
from laptime.errors import TrackingError
from laptime.ladder.advising import mine_of
from laptime.ladder.figures import headline_figures, variant_figures
from laptime.ladder.request import tracking_uri
from laptime.records import LadderRecord, RunRecord
from laptime.tracking import Journal
from laptime.tracking.base import Tracker
from laptime.tracking.outage import unsent
from laptime.tracking.publish import (
    ladder_finished,
    ladder_key,
    quality_judged,
    variant_compared,
    variant_key,
    variant_recorded,
)
from laptime.tracking.rule_history import advice_verified, below_ladder
from laptime.tracking.sync import sync, target_of

if TYPE_CHECKING:
    from laptime.compare.model import Comparison
    from laptime.ladder.run import Ladder


def ended_in_journal(ladder: Ladder, journal: Journal, ended: LadderRecord, told: Sequence[RunRecord]) -> None:
    """Tells how a ladder has ended; safe to repeat.

    Args:
        ladder: it.
        journal: of it.
        ended: its record, with its status.
        told: the processes that the journal holds already.
    """
    for rung in ended.rungs:
        if runs := mine_of(ladder.runs, rung.variant):
            variant_recorded(journal, ended, rung, runs, ladder.folder, told)
    for variant, finding in ladder.counsel.verified():
        advice_verified(journal, below_ladder(ended), variant, finding)
    own = {"ladder.json": ladder.folder / "ladder.json"} | ladder.counsel.files
    if ladder.comparison is None:
        ladder_finished(journal, ended, {}, f"The ladder ended as {ended.status}.", own)
        return
    tell_compared(journal, ended, ladder.comparison)
    figures = headline_figures(ladder.comparison)
    ladder_finished(journal, ended, figures, to_markdown(ladder.comparison), own | ladder.files)


def tell_compared(journal: Tracker, ended: LadderRecord, comparison: Comparison) -> None:
    """Tells figures and the verdict on quality of each variant, and that of the fastest as the ladder's."""
    for row in comparison.rows:
        if row.n:
            variant_compared(journal, ended, row.variant, variant_figures(row))
            if row.variant != comparison.baseline:
                quality_judged(journal, variant_key(ended, row.variant), row.verdict)
    fastest = comparison.headline("fastest")
    if fastest is not None and fastest.verdict is not None:
        quality_judged(journal, ladder_key(ended), fastest.verdict)


def sent(ladder: Ladder, say: Callable[[str], None]) -> None:
    """Sends the journal of a ladder that has ended; raises TrackingError, which says what waits where, if not all."""
    uri = tracking_uri(ladder.request, ladder.places)
    try:
        sync(ladder.places, uri, say, others=False)  # those of other stores were asked for at the start
    except TrackingError as error:
        journal = ladder.places.journal / f"{ladder.record.id}.jsonl"
        raise unsent(journal, target_of(uri, ladder.places), error) from error
