"""One event of a journal, told to a store."""

from __future__ import annotations

from collections.abc import Callable

from laptime.errors import RefusedError
from laptime.tracking.base import MetricRow, Store
from laptime.tracking.events import Ended, Event, Filed, Measured, Modelled, Moved, Noted, Started, Tagged

Say = Callable[[str], None]


def apply(event: Event, store: Store, say: Say, deleted: set[str]) -> None:
    """Tells a store of an event; what it will never take is said, so that the rest goes on.

    Args:
        event: the event.
        store: hears it.
        say: gets the sentences.
        deleted: keys of runs that somebody has deleted in the store, as far as they were met.

    Raises:
        TrackingError: the store does not answer, or refuses what the rest stands on.
    """
    try:
        _send(event, store, say)
    except RefusedError as refusal:
        _pass_over(event, refusal, deleted, say)


def _send(event: Event, store: Store, say: Say) -> None:
    match event:
        case Started():
            store.start_run(event.run)
        case Measured():
            store.log_metrics(event.key, [MetricRow(*row) for row in event.rows])
        case Tagged():
            store.set_tags(event.key, event.tags)
        case Noted():
            store.set_note(event.key, event.markdown)
        case Filed():
            _file(event, store, say)
        case Modelled() | Moved():
            pass  # models all go at the end, in one process: starting torch costs more than logging a model
        case Ended():
            store.end_run(event.key, event.status, event.ended_at)


def _pass_over(event: Event, refusal: RefusedError, deleted: set[str], say: Say) -> None:
    """Says what the store will never take, so that the rest goes on; raises the refusal of what the rest stands on."""
    if isinstance(event, Modelled | Moved):
        raise refusal
    if refusal.deleted:
        key = event.run.key if isinstance(event, Started) else event.key
        if key not in deleted:
            say(f"the run {key} was deleted in the store, so what came of it later is left out.")
        deleted.add(key)
    elif isinstance(event, Filed):
        say(f"{event.path} was refused, so the run {event.key} stays without it: {refusal.reason}")
    else:
        raise refusal


def _file(event: Filed, store: Store, say: Say) -> None:
    if event.path.exists():
        store.log_artifact(event.key, event.path, event.folder)
    else:
        say(f"{event.path} is gone, so the run {event.key} stays without it.")
