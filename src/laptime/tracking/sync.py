"""Brings the tracking store up to date: replays what is waiting in journals, then ends the runs of dead processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from laptime.errors import TrackingError, UsageError
from laptime.places import Places
from laptime.tracking.applying import Say
from laptime.tracking.events import read_journal
from laptime.tracking.journal import JournalBusyError, all_ended, held, is_settled, read_state, replay, settle
from laptime.tracking.reach import require_answer
from laptime.tracking.sweep import sweep
from laptime.tracking.uri import masked, without_credentials

EMBEDDED = "embedded"


@dataclass(frozen=True)
class SyncResult:
    """What a sync did.

    Attributes:
        sent: journals of which something arrived.
        busy: journals that a living process holds.
        damaged: journals that can't be read, with the reason.
        ended: keys of the runs that were ended because their process is gone.
        events: events that arrived.
        unsent: journals whose store does not answer or refuses them.
    """

    sent: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    events: int = 0
    unsent: tuple[str, ...] = ()

    def and_also(self, other: SyncResult) -> SyncResult:
        """Both together."""
        return SyncResult(
            self.sent + other.sent,
            self.busy + other.busy,
            self.damaged + other.damaged,
            self.ended + other.ended,
            self.events + other.events,
            self.unsent + other.unsent,
        )


def waiting(places: Places) -> list[Path]:
    """Journals with events that have not arrived or runs that nobody ended. Costs a look at each; no MLflow."""
    return [path for path in sorted(places.journal.glob("*.jsonl")) if not is_settled(path)]


def left_open(places: Places) -> bool:
    """Whether a journal that no living process holds has a run in its store that nobody ended; asks no store."""
    return any(_left_open(path) for path in waiting(places))


def _left_open(path: Path) -> bool:
    state = read_state(path)
    if not state.runs:
        return False  # nothing of it has arrived anywhere
    try:
        with held(path):
            return not all_ended(read_journal(path)[1][: state.applied])
    except TrackingError:  # a living process holds it, or it is damaged
        return False


def target_of(uri: str, places: Places) -> str:
    """A tracking URI as a journal's header names it: without credentials, and the embedded store by that word."""
    return EMBEDDED if uri == places.embedded_mlflow_uri else without_credentials(uri)


def sync(
    places: Places,
    uri: str,
    say: Say,
    redirect: bool = False,
    enough: Callable[[], bool] | None = None,
    others: bool = True,
) -> SyncResult:
    """Replays all journals that no living process holds, then sweeps. With nothing waiting it costs milliseconds.

    Args:
        places: the stores.
        uri: the store in use: it gets the journals that are meant for it or for any. Others go to their own; where
            that one does not answer, it is said, and they wait.
        say: gets a sentence for what is worth knowing.
        redirect: sends all journals to `uri`, whatever they were meant for.
        enough: asked after each event whether the rest, and the models, wait for the next time; None for all. The sweep
            comes in any case.
        others: whether journals that are meant for other stores are sent as well.

    Raises:
        TrackingError: the store in use does not answer; what had arrived is noted, and the next sync goes on there.
    """
    by_store: dict[str, list[Path]] = {}
    result = SyncResult()
    for path in waiting(places):
        try:
            by_store.setdefault(uri if redirect else store_of(path, places, uri), []).append(path)
        except TrackingError as error:
            say(str(error))
            result = result.and_also(SyncResult(damaged=(str(path),)))
    for store, paths in sorted(by_store.items(), key=lambda entry: entry[0] == uri):
        if store != uri and not others:
            continue
        try:
            result = result.and_also(_sync_store(store, paths, places, say, enough))
        except (TrackingError, UsageError) as error:  # also of a journal that is meant for what is no store
            if store == uri:
                raise
            say(f"{error} {_of_earlier(paths)}")
            result = result.and_also(SyncResult(unsent=tuple(map(str, paths))))
    return result


def _of_earlier(paths: Sequence[Path]) -> str:
    """What waits for another store than the one in use, and how it gets away from a store that never comes back."""
    one = len(paths) == 1
    return (
        f"({len(paths)} {'journal' if one else 'journals'} of earlier commands {'waits' if one else 'wait'} for it; "
        "laptime sync --tracking-uri URI sends them all to another store.)"
    )


def store_of(path: Path, places: Places, uri: str) -> str:
    """The store that a journal is meant for: `uri` itself, which may hold a password, where that is the one."""
    target = read_journal(path)[0].target
    if target in (None, target_of(uri, places)):
        return uri
    return places.embedded_mlflow_uri if target == EMBEDDED else str(target)


def _sync_store(
    uri: str, paths: Sequence[Path], places: Places, say: Say, enough: Callable[[], bool] | None
) -> SyncResult:
    from laptime.tracking.mlflow import MlflowTracker

    store = MlflowTracker(uri, places.artifacts)
    sent, busy, events = [], [], 0
    refused: dict[str, TrackingError] = {}
    for path in paths:
        before = _applied(path, store.target)
        try:
            state = replay(path, store, say, enough)
        except JournalBusyError:
            busy.append(str(path))
            continue
        except TrackingError as error:
            require_answer(uri)  # a store that is away is away for all; one that refuses this journal may take the next
            refused[str(path)] = error
            continue
        if state.applied > before:
            sent.append(str(path))
            events += state.applied - before
    ended = sweep(store)
    if refused and len(refused) == len(paths):
        raise next(iter(refused.values()))
    for refusal in dict.fromkeys(map(str, refused.values())):
        say(refusal)
    if ended:
        one = len(ended) == 1
        say(
            f"{len(ended)} {'run' if one else 'runs'} in {masked(uri)} had no process any more and "
            f"{'was' if one else 'were'} marked as killed."
        )
    _settle_rest(paths, busy)
    return SyncResult(tuple(sent), tuple(busy), (), tuple(run.key for run in ended), events, tuple(refused))


def _applied(path: Path, target: str) -> int:
    state = read_state(path)
    return state.applied if state.target == target else 0


def _settle_rest(paths: Sequence[Path], busy: Sequence[str]) -> None:
    for path in paths:
        if str(path) not in busy and not is_settled(path):
            try:
                with held(path):
                    settle(path)
            except JournalBusyError:
                continue
