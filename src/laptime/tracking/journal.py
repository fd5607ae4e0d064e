"""The journal: every event of a ladder as a line on this disk first, and later, exactly once, in the tracking store."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Literal, Self

from pydantic import Field, ValidationError

from laptime.errors import TrackingError
from laptime.records import Readable, write_json
from laptime.tracking.applying import Say, apply
from laptime.tracking.base import MetricRow, ModelFiles, RunStart, RunStatus, Store
from laptime.tracking.events import (
    Ended,
    Event,
    Filed,
    Header,
    Measured,
    Modelled,
    Moved,
    Noted,
    Started,
    Tagged,
    read_journal,
)

STATE_SCHEMA: Literal["laptime.replay/1"] = "laptime.replay/1"


class JournalBusyError(TrackingError):
    """Another living process writes or replays this journal."""


class ReplayState(Readable):
    """How far a journal has been replayed; losing it costs time, never a double.

    Attributes:
        target: the store that it was replayed into, without credentials.
        applied: events that have arrived.
        runs, models: the store's run id of each key; keys whose models are logged or never will be.
        size: bytes of the journal when everything in it had arrived and each of its runs had ended; 0 before that.
    """

    schema_: Literal["laptime.replay/1"] = Field(default=STATE_SCHEMA, alias="schema")
    target: str = ""
    applied: Annotated[int, Field(ge=0)] = 0
    runs: dict[str, str] = Field(default_factory=dict)
    models: tuple[str, ...] = ()
    size: int = 0


class Journal:
    """A tracker that writes lines to a file, which this process holds locked until `close`.

    Each call's events are written and synced to the disk before it returns.

    Args:
        path: the file; an existing one is continued.
        target: the store that it is meant for (see `laptime.tracking.sync.target_of`); None for any.

    Raises:
        JournalBusyError: another process holds it.
        TrackingError: it can't be written.
    """

    def __init__(self, path: Path, target: str | None = None) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise TrackingError(f"the journal {path} can't be written: {error}.") from error
        try:
            _lock(self._file, path)
            self._repair()
            if self._file.seek(0, os.SEEK_END) == 0:
                self._write(Header(target=target))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file; later calls fail."""
        self._file.close()

    def start_run(self, start: RunStart) -> None:
        """See `Tracker.start_run`."""
        self._write(Started(run=start))

    def log_metrics(self, key: str, rows: Sequence[MetricRow]) -> None:
        """See `Tracker.log_metrics`."""
        if rows:
            self._write(Measured(key=key, rows=tuple((r.name, r.value, r.step, r.at) for r in rows)))

    def set_tags(self, key: str, tags: Mapping[str, str]) -> None:
        """See `Tracker.set_tags`."""
        self._write(Tagged(key=key, tags=dict(tags)))

    def set_note(self, key: str, markdown: str) -> None:
        """See `Tracker.set_note`."""
        self._write(Noted(key=key, markdown=markdown))

    def log_artifact(self, key: str, path: Path, folder: str = "") -> None:
        """See `Tracker.log_artifact`; the file must stay until it has been replayed; `move` tells where it goes."""
        self._write(Filed(key=key, path=path.absolute(), folder=folder))

    def move(self, path: Path, to: Path) -> None:
        """Notes that the files of a folder are moved; to be called before they are."""
        self._write(Moved(path=path.absolute(), to=to.absolute()))

    def log_model(self, model: ModelFiles) -> None:
        """See `Tracker.log_model`; the folder must stay where it is until it has been replayed."""
        self._write(Modelled(key=model.key, folder=model.folder.absolute()))

    def end_run(self, key: str, status: RunStatus, ended_at: float) -> None:
        """See `Tracker.end_run`."""
        self._write(Ended(key=key, status=status, ended_at=ended_at))

    def send(self, store: Store, say: Say, enough: Callable[[], bool] | None = None) -> ReplayState:
        """Replays what this process has written so far; see `replay`.

        Args:
            store: where to.
            say: gets a sentence for what is worth knowing.
            enough: asked after each event whether the rest, and the models, wait for the next time; None for all.
        """
        return _replay(self.path, store, say, enough)

    def _write(self, line: Event | Header) -> None:
        size = self._file.seek(0, os.SEEK_END)
        rest = memoryview(line.model_dump_json(by_alias=True).encode() + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size)  # half a line would spoil the next one
            raise TrackingError(
                f"the journal {self.path} can't be written: {error}; make room on the disk and start again, "
                "what was written is kept."
            ) from error

    def _repair(self) -> None:
        """Takes off a last line that an earlier process could not finish, so that the next one starts a line."""
        self._file.seek(0)
        content = self._file.read()
        if content and not content.endswith(b"\n"):
            self._file.truncate(content.rfind(b"\n") + 1)
        read_journal(self.path)  # a damaged one, or another version's, is not continued


def replay(path: Path, store: Store, say: Say, enough: Callable[[], bool] | None = None) -> ReplayState:
    """Sends a journal's events to a store, from where the last replay stopped. Repeating it changes nothing.

    With `enough` it stops early, as `Journal.send` does.

    Raises:
        JournalBusyError: a living process writes or replays it.
        TrackingError: the store does not answer or refuses; what had arrived is noted.
    """
    with held(path):
        return _replay(path, store, say, enough)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds a journal; raises JournalBusyError where another process does."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise TrackingError(f"the journal {path} can't be read: {error}.") from error
    with file:
        _lock(file, path)
        yield


def read_state(path: Path) -> ReplayState:
    """The state beside a journal; a missing or broken one is as good as none."""
    try:
        return ReplayState.model_validate_json(state_path(path).read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return ReplayState()


def is_settled(path: Path) -> bool:
    """Whether all of a journal has arrived and all of its runs have ended; reads no more than the state."""
    try:
        return 0 < path.stat().st_size == read_state(path).size
    except OSError:
        return False


def settle(path: Path) -> None:
    """Notes that runs which the journal does not end have been ended by the sweep; the caller holds it.

    Unsent models and events keep a journal unsettled.
    """
    _, events = read_journal(path)
    state = read_state(path)
    if state.applied == len(events) and not _pending(events, state):
        write_json(state_path(path), state.model_copy(update={"size": path.stat().st_size}))


def state_path(path: Path) -> Path:
    """Where the state of a journal stands."""
    return path.with_suffix(".state.json")


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise JournalBusyError(f"the journal {path} is in use by a running process: wait until it ends.") from error


def _replay(path: Path, store: Store, say: Say, enough: Callable[[], bool] | None = None) -> ReplayState:
    size = path.stat().st_size
    _, events = read_journal(path)
    state = read_state(path)
    if state.target != store.target or state.applied > len(events):
        state = ReplayState(target=store.target)
    elif state.runs and state.size != size and not store.knows(state.runs.values()):
        say(f"{store.target} holds none of the runs of {path.stem} any more, so all of it is sent there again.")
        state = ReplayState(target=store.target)
    store.run_ids.update(state.runs)
    keys = {e.run.key for e in events if isinstance(e, Started)}
    deleted: set[str] = set()
    for number in range(state.applied, len(events)):
        apply(events[number], store, say, deleted)
        known = {k: v for k, v in store.run_ids.items() if k in keys}
        state = state.model_copy(update={"applied": number + 1, "runs": known})
        write_json(state_path(path), state)
        if enough is not None and enough():
            return state
    if enough is not None:
        return state
    state = _send_models(events, state, store, say)
    if all_ended(events):
        state = state.model_copy(update={"size": size})
    write_json(state_path(path), state)
    return state


def _send_models(events: Sequence[Event], state: ReplayState, store: Store, say: Say) -> ReplayState:
    waiting = _pending(events, state)
    there = [m for m in waiting if (m.folder / "model.pt").is_file()]
    refused = dict(store.log_models(there)) if there else {}
    for model in waiting:
        reason = refused.get(model.key) if model in there else f"{model.folder / 'model.pt'} is gone"
        if reason:
            say(f"the model of {model.key} was not logged: {reason}.")
    return state.model_copy(update={"models": state.models + tuple(m.key for m in waiting)})


def _pending(events: Sequence[Event], state: ReplayState) -> list[ModelFiles]:
    found = {e.key: ModelFiles(e.key, e.folder) for e in events if isinstance(e, Modelled)}
    return [m for key, m in found.items() if key not in state.models]


def all_ended(events: Sequence[Event]) -> bool:
    """Whether each run that was started has ended."""
    told = [e for e in events if isinstance(e, (Started, Ended))]
    last = {e.key if isinstance(e, Ended) else e.run.key: e for e in told}
    return all(isinstance(e, Ended) for e in last.values())
