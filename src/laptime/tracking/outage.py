"""What is said of a tracking store that does not answer: once, however often a command meets it, and what waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from laptime.errors import LaptimeError, TrackingError
from laptime.tracking.events import read_journal
from laptime.tracking.journal import is_settled, read_state
from laptime.tracking.reach import KEPT


class Outage:
    """Tells each outage once: a ladder asks its store at its start, after each process, for advice and at its end.

    Args:
        say: takes a sentence.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._told = say, set[str]()

    def tell(self, error: LaptimeError, without: str = "") -> None:
        """Says what a store has answered or not, and with what it was said before only what that costs now.

        Args:
            error: the store's.
            without: what goes on without the store, as the beginning of a sentence.
        """
        # The reason stands behind it, and is another for one outage: a request is cut off, the next one is refused.
        what = str(error).partition(" (")[0]
        if what not in self._told:
            self._say(f"{without}: {error}" if without else str(error))
        elif without:
            self._say(f"{without}: the tracking store still does not answer or refuses.")
        self._told.add(what)


def unsent(journal: Path, target: str, error: TrackingError) -> TrackingError:
    """The error at a command's end: why the store has not taken all, what waits where, and what brings it over.

    Args:
        journal: that was to be sent.
        target: its store, as `laptime.tracking.sync.target_of` names it.
        error: the store's.
    """
    if is_settled(journal):  # an earlier command's is what the store refuses
        return error
    entries, state = len(read_journal(journal)[1]), read_state(journal)
    there = min(state.applied, entries) if state.target == target else 0
    left = "all but the models" if there == entries else f"{there} of its {entries} entries"
    why = str(error).removesuffix(f": {KEPT}")
    begin = f"{error} The" if why == str(error) else f"{why}: the"
    return TrackingError(
        f"{begin} journal {journal} is kept, of which {left} arrived; laptime sync sends the rest when the store is "
        "back, laptime sync --tracking-uri URI all of it to another one."
    )
