"""Sends a ladder's journal between its timed processes, so that the store shows the ladder as it goes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from laptime.errors import TrackingError
from laptime.tracking.applying import Say
from laptime.tracking.journal import Journal
from laptime.tracking.outage import Outage
from laptime.tracking.reach import require_answer, require_port

# Between two processes a store may cost about so many seconds; what is left waits for the next time.
_ENOUGH_S = 2.0
_ANSWER_S = 1.0
# After a store did not answer it is left alone, each time for twice as long.
_PAUSE_S, _LONGEST_S = 30.0, 600.0
_SHORT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}


class Courier:
    """Sends what a journal holds, for as long as a pause between two processes may last.

    Args:
        journal: held by this process.
        store: the tracking URI, and where the artifacts of an embedded store go.
        say: is told what is left out.
        outage: is told that a store does not answer; None for a new one.
        clock: seconds.
    """

    def __init__(
        self,
        journal: Journal,
        store: tuple[str, Path],
        say: Say,
        outage: Outage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal, self._store, self._say, self._clock = journal, store, say, clock
        self.outage = outage or Outage(say)
        self._next, self._pause = 0.0, 0.0
        self._sent = 0  # bytes of the journal when all of it had arrived

    def deliver(self) -> None:
        """Sends for a while; a store that does not answer costs nothing but the question, and less often each time."""
        begin, size = self._clock(), self._size()
        # Nothing new, as between the pairs of a search: reading the journal and opening the store would be for nothing.
        if begin < self._next or size == self._sent:
            return
        try:
            self._sent = size if self._send(begin) else 0
        except TrackingError as error:
            self.outage.tell(error)
            self._pause = min(max(_PAUSE_S, 2 * self._pause), _LONGEST_S)
            self._next = self._clock() + self._pause
        else:
            self._pause = 0.0

    def _size(self) -> int:
        try:
            return self._journal.path.stat().st_size
        except OSError:  # reading it says what is wrong
            return -1

    def _send(self, begin: float) -> bool:
        """Sends until that is enough; whether all has arrived."""
        cut: list[bool] = []

        def enough() -> bool:
            if self._clock() - begin > _ENOUGH_S:
                cut.append(True)
            return bool(cut)

        uri, artifacts = self._store
        require_answer(uri, _ANSWER_S)
        require_port(uri, _ANSWER_S)
        from laptime.tracking.mlflow import MlflowTracker

        with short_tries():
            self._journal.send(MlflowTracker(uri, artifacts), self._say, enough)
        return not cut


@contextmanager
def short_tries() -> Iterator[None]:
    """MLflow's own patience, which it reads at each request, is for when nobody waits; what was set comes back."""
    before = {name: os.environ.get(name) for name in _SHORT}
    os.environ.update(_SHORT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
