"""Reaching a tracking store: switches that MLflow reads, a quick question to a server, one sentence when it fails."""

from __future__ import annotations

import fcntl
import gc
import http.client
import logging
import os
import re
import socket
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

from laptime.errors import DataError, RefusedError, TrackingError, shorten
from laptime.tracking.uri import is_http, masked, sqlite_file, without_credentials

_ANSWER_S = 3.0
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}

_TIMEOUT, _TIMEOUT_S, _FILE_TIMEOUT_S = "MLFLOW_HTTP_REQUEST_TIMEOUT", "10", "120"
# MLflow tries for minutes by default. All of it is in the journal, so a short try is enough; what the user set stays.
_SHORT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    _TIMEOUT: _TIMEOUT_S,
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}
# Bad request, too large, not to be processed: asked again, the same comes back.
_FOR_GOOD = (400, 413, 422)
# What MLflow says of a run that was deleted.
_DELETED = "must be in the 'active' state"
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # A server's client prints the address of each run that ends, into the JSON that a machine reads.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A bar for each small file of a run that is fetched, in a log, too.
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def set_switches() -> None:
    """Quiet and short tries; to be called before MLflow is imported, since it reads some of them then."""
    os.environ.update(_QUIET)
    for name, value in _SHORT.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow.tracking.fluent"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # a traceback of what it raises all the same


def let_go(error: BaseException | None) -> None:
    """Frees what the frames of an interruption hold: a connection in the middle of a write keeps SQLite's file locked,
    also for whoever writes next in the same process.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    gc.collect()  # a connection of sqlite3 refers to itself


@contextmanager
def waiting_for_files() -> Iterator[None]:
    """Gives a server longer to answer: one that passes a file on to a bucket answers when that has all of it.

    What the user or a `Courier` set stays.
    """
    ours = os.environ.get(_TIMEOUT) == _TIMEOUT_S
    if ours:
        os.environ[_TIMEOUT] = _FILE_TIMEOUT_S
    try:
        yield
    finally:
        if ours:
            os.environ[_TIMEOUT] = _TIMEOUT_S


def require_port(uri: str, limit_s: float) -> None:
    """Asks whether a database's server takes connections: MLflow would try for minutes.

    Raises:
        TrackingError: it does not.
    """
    scheme = uri.partition("://")[0].split("+")[0]
    if scheme not in _PORTS:
        return
    try:
        parts = urlsplit(uri)
        socket.create_connection((parts.hostname or "localhost", parts.port or _PORTS[scheme]), limit_s).close()
    except ValueError as error:  # whose words may hold a part of the password
        raise TrackingError(unreachable(uri, "a wrong port")) from error
    except OSError as error:
        raise TrackingError(unreachable(uri, str(error))) from error


def require_answer(uri: str, limit_s: float = _ANSWER_S) -> None:
    """Asks a server for any answer at all, refusals too: MLflow's own first request would wait for longer."""
    if not is_http(uri):
        return
    request = urllib.request.Request(without_credentials(uri).rstrip("/") + "/health")  # noqa: S310 (http, checked)
    try:
        urllib.request.urlopen(request, timeout=limit_s).close()  # noqa: S310
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError, http.client.HTTPException) as error:  # a wrong port and an answer in no HTTP, too
        if "CERTIFICATE" in str(error):
            return  # MLflow has its own settings for certificates
        reason = getattr(error, "reason", None) or error
        raise TrackingError(unreachable(uri, str(reason))) from error


@contextmanager
def alone(uri: str) -> Iterator[None]:
    """Keeps other processes of ours away from a SQLite store while it is opened for the first time.

    MLflow makes the tables then, and two that do so at once spoil it for each other.
    """
    if (path := sqlite_file(uri)) is None:
        yield
        return
    with ExitStack() as held:
        with suppress(OSError):  # a folder that may only be read has its tables already
            file = held.enter_context(path.with_name(f"{path.name}.lock").open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turns what MLflow and the libraries below it raise into one sentence."""
    try:
        yield
    except (TrackingError, DataError):
        raise
    except Exception as error:  # MLflow lets through what requests, SQLAlchemy, boto3 and sqlite raise
        if isinstance(error, (ImportError, AttributeError, TypeError, NameError)):
            raise
        message = unreachable(uri, f"{type(error).__name__}: {error}")
        if _status(error) in _FOR_GOOD:
            said = shorten(_no_credentials(str(error).strip().partition("\n")[0].replace(uri, masked(uri))), 160)
            raise RefusedError(message, said, _DELETED in str(error)) from error
        raise TrackingError(message) from error


def _status(error: Exception) -> int | None:
    """The HTTP status that MLflow's own errors and those of requests carry."""
    ask = getattr(error, "get_http_status_code", None)
    status = ask() if callable(ask) else getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def unreachable(uri: str, reason: str) -> str:
    first = reason.strip().partition("\n")[0].replace(uri, masked(uri))
    return (
        f"the tracking store {masked(uri)} does not answer or refuses ({shorten(_no_credentials(first), 200)}): "
        "everything is kept in the journal, and laptime sync sends it when the store is back."
    )


def _no_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//***@", text)
