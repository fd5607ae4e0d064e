"""How long MLflow waits and what it says meanwhile: switches that it reads from the environment, and files."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from laptime.tracking.reach import status_of

_TIMEOUT, _TIMEOUT_S, _FILE_TIMEOUT_S = "MLFLOW_HTTP_REQUEST_TIMEOUT", "10", "120"
_RETRIES, _RETRIES_OF_FILES, _PAUSE_S = "MLFLOW_HTTP_REQUEST_MAX_RETRIES", 2, 2.0
# MLflow tries for minutes by default, and where a server names a time to come back (429, 503) it sleeps for so long, be
# it hours. All of it is in the journal, so short tries are enough, at once and after 2 s; what the user set stays.
_SHORT = {
    _RETRIES: str(_RETRIES_OF_FILES),
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    _TIMEOUT: _TIMEOUT_S,
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}
# From here on an answer is about the server itself.
_SERVERS_OWN = 500
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # A server's client prints the address of each run that ends, into the JSON that a machine reads.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A bar for each small file of a run that is fetched, in a log, too.
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
# MLflow would hang each of our metrics on the model that is named there.
_FOREIGN = ("MLFLOW_ACTIVE_MODEL_ID", "_MLFLOW_ACTIVE_MODEL_ID")


def set_switches() -> None:
    """Quiet and short tries; to be called before MLflow is imported, since it reads some of them then."""
    os.environ.update(_QUIET)
    for name, value in _SHORT.items():
        os.environ.setdefault(name, value)
    for name in _FOREIGN:
        os.environ.pop(name, None)
    # Of each request, where the user has said that a server's certificate is not to be looked at.
    warnings.filterwarnings("ignore", message="Unverified HTTPS request")
    for name in ("alembic", "mlflow.tracking.fluent"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs the traceback of what it raises then: a database that is locked or full is one sentence of ours.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


@contextmanager
def waiting_for_files() -> Iterator[None]:
    """Gives a server longer to answer: one that passes a file on to a bucket answers when that has all of it.

    MLflow does not try again then, which `send_files` does. What the user or a `Courier` set stays.
    """
    ours = {_TIMEOUT: (_TIMEOUT_S, _FILE_TIMEOUT_S), _RETRIES: (_SHORT[_RETRIES], "0")}
    ours = {name: values for name, values in ours.items() if os.environ.get(name) == values[0]}
    os.environ.update({name: longer for name, (_, longer) in ours.items()})
    try:
        yield
    finally:
        os.environ.update({name: before for name, (before, _) in ours.items()})


class Held:
    """Whether a server has held what was sent for as long as it may: asked again, it would do so again.

    Attributes:
        limit_s: what a file may take it.
    """

    def __init__(self) -> None:
        with waiting_for_files():
            self.limit_s = float(os.environ.get(_TIMEOUT, _FILE_TIMEOUT_S))
        self._begin = time.monotonic()

    def __bool__(self) -> bool:
        return time.monotonic() - self._begin >= self.limit_s


def send_files(send: Callable[[], None]) -> None:
    """Sends files with that patience, and again after some seconds, as other requests are, where a line was cut.

    What a server has held for all that time is given up at once: three times two minutes would be spent on it.
    """
    left = _RETRIES_OF_FILES if os.environ.get(_RETRIES) == _SHORT[_RETRIES] else 0
    while True:
        held = Held()
        try:
            with waiting_for_files():
                send()
            return
        except Exception as error:
            if not left or held or not _passing(error):
                raise
        left -= 1
        time.sleep(_PAUSE_S)


def _passing(error: Exception) -> bool:
    """Whether the next try may not meet it: of a server, and no answer about what was asked or who asks."""
    status = status_of(error)
    if status is not None:
        return status >= _SERVERS_OWN
    return isinstance(error, OSError) and getattr(error, "errno", None) is None
