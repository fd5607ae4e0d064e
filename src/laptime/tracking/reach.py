"""Reaching a tracking store: a quick question to it, and one sentence when something fails."""

from __future__ import annotations

import fcntl
import gc
import http.client
import re
import socket
import sqlite3
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from laptime.errors import DataError, RefusedError, TrackingError, shorten
from laptime.tracking.uri import is_http, masked, sqlite_file, without_credentials

_ANSWER_S = 3.0
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}

# Of a reason, in a sentence.
_LONGEST = 240
# Bad request, too large, not to be processed: asked again, the same comes back.
_FOR_GOOD = (400, 413, 422)
_EMPTYING = (301, 302, 303)
# What is told of a store that is written to, and in its place of one that is only asked.
_WRITING, _READING = "right to write to the experiment (EDIT)", "right to read the experiment (READ)"
KEPT, _UNREAD = (
    "everything is kept in the journal, and laptime sync sends it when the store is back.",
    "nothing was read from it.",
)
# Answers that are about who asks, with the remedy; their own words name neither.
_WHO = {
    401: "it does not know who asks (HTTP 401): set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
    "MLFLOW_TRACKING_TOKEN, to what it knows",
    403: f"it forbids this to who asks (HTTP 403): have the {_WRITING} given, or set "
    "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, to somebody's who has it",
}
# What MLflow says of a run that was deleted, and of one that mlflow gc has taken away afterwards.
_DELETED = re.compile(r"must be in the 'active' state|\bRun with id=\w+ not found")
# What stands before the reason when a request was tried several times: an address, and words that are always the same.
_TRIED = re.compile(r"^.*Max retries exceeded with url: .*\(Caused by (.+)\)$")
# What boto3 says before the reason for which a bucket did not take a file: two paths.
_UPLOADED = re.compile(r"Failed to upload .* to (\S+?)/\S*: (?=An error occurred)")
# SQLAlchemy's first line, of how it came to write; the database's own words are in the next one.
_FLUSHED = re.compile(r"\(raised as a result of Query-invoked autoflush;[^\n]*\n")


def let_go(error: BaseException | None) -> None:
    """Frees what the frames of an interruption hold: a connection in the middle of a write keeps SQLite's file locked,
    also for whoever writes next in the same process.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    gc.collect()  # a connection of sqlite3 refers to itself


def require_port(uri: str, limit_s: float = _ANSWER_S) -> None:
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
        urllib.request.build_opener(_Redirects).open(request, timeout=limit_s).close()
    except urllib.error.HTTPError as answer:
        answer.close()  # it holds the connection
        return
    except (OSError, ValueError, http.client.HTTPException) as error:  # a wrong port and an answer in no HTTP, too
        if "CERTIFICATE" in str(error):
            return  # MLflow has its own settings for certificates
        reason = getattr(error, "reason", None) or error
        raise TrackingError(unreachable(uri, str(reason))) from error


def require_file(uri: str) -> None:
    """Asks whether a SQLite store can be opened: MLflow would try for two minutes.

    Raises:
        TrackingError: it can't.
    """
    if (path := sqlite_file(uri)) is None:
        return
    try:
        with closing(sqlite3.connect(path, timeout=_ANSWER_S)) as file:
            file.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        raise TrackingError(unreachable(uri, str(error))) from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to another server only where what is sent comes along, which it does not after 301 to 303."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        asked, answered = urlsplit(req.full_url), urlsplit(newurl)
        if code in _EMPTYING and (asked.scheme, asked.netloc) != (answered.scheme, answered.netloc):
            fp.close()
            raise OSError(f"it redirects to {answered.scheme}://{answered.netloc}, so give the address behind that")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


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
        if isinstance(error, ImportError) and (error.name or "laptime").partition(".")[0] not in ("laptime", "mlflow"):
            # A database's driver, or the client of the cloud that a server keeps its files in.
            reason = f"the Python module {error.name} is not installed here: install it"
            raise TrackingError(unreachable(uri, reason)) from error
        if isinstance(error, (ImportError, AttributeError, TypeError, NameError)):
            raise
        raise refusal(uri, error) or TrackingError(_failed(uri, error)) from error


@contextmanager
def read_from(uri: str) -> Iterator[None]:
    """As `explained`, where a store is only asked: nothing of it waits in a journal, and reading is another right."""
    try:
        with explained(uri):
            yield
    except TrackingError as error:
        told = str(error).replace(KEPT, _UNREAD).replace(_WRITING, _READING)
        if isinstance(error, RefusedError):
            raise RefusedError(told, error.reason, error.deleted) from error
        raise TrackingError(told) from error


def refusal(uri: str, error: Exception) -> RefusedError | None:
    """The error for what a store refuses for good; None for an error that the next try may not meet."""
    deleted = _DELETED.search(str(error)) is not None
    if status_of(error) not in _FOR_GOOD and not deleted:
        return None
    said = shorten(_no_credentials(str(error).strip().partition("\n")[0].replace(uri, masked(uri))), 160)
    return RefusedError(_failed(uri, error), said, deleted)


def _failed(uri: str, error: Exception) -> str:
    who = _WHO.get(status_of(error) or 0)
    return unreachable(uri, who or f"{type(error).__name__}: {error}")


def status_of(error: Exception) -> int | None:
    """The HTTP status that MLflow's own errors and those of requests carry."""
    ask = getattr(error, "get_http_status_code", None)
    status = ask() if callable(ask) else getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def unreachable(uri: str, reason: str) -> str:
    first = last_cause(reason).replace(uri, masked(uri))
    return (
        f"the tracking store {masked(uri)} does not answer or refuses ({shorten(_no_credentials(first), _LONGEST)}): "
        + KEPT
    )


def last_cause(reason: str) -> str:
    """The first line of a library's words, and of a request that was tried several times why the last try failed."""
    first = _FLUSHED.sub("", reason.strip()).partition("\n")[0]
    return _TRIED.sub(r"\1", _UPLOADED.sub(r"bucket \1: ", first))


def _no_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//***@", text)
