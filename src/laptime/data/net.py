"""HTTP with an end: probes that take no longer than they may, and downloads that are whole or an error."""

from __future__ import annotations

import base64
import http.client
import math
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from laptime.data.resume import kept_bytes, note_tag, noted_tag
from laptime.errors import DataError, UnreachableError, shorten

# Together with the start of the process this stays below the 3 s that may be lost where there is no internet.
_BUDGET_S = 2.6
SHARE_S = 1.3
_TIMEOUT_S = 20.0
_BLOCK = 1 << 18
_BROKEN = (OSError, http.client.HTTPException, ValueError)

Moved = Callable[[int], None]


@dataclass
class Budget:
    """Seconds that may still be spent on finding out that nothing answers."""

    left_s: float = _BUDGET_S

    def probe(self, url: str, share_s: float = math.inf) -> dict[str, str]:
        """Asks whether a server answers at all, with whatever status; returns the headers in small letters.

        Raises:
            UnreachableError: nothing answered in the share of time, or in what is left of it.
        """
        started = time.monotonic()
        try:
            return _probe(url, max(0.1, min(share_s, self.left_s)))
        finally:
            self.left_s -= time.monotonic() - started


def _probe(url: str, timeout_s: float) -> dict[str, str]:
    answer: queue.Queue[dict[str, str] | Exception] = queue.Queue()

    def ask() -> None:
        try:
            with urllib.request.urlopen(_request(url, "HEAD"), timeout=timeout_s) as reply:  # noqa: S310
                answer.put({k.lower(): v for k, v in reply.headers.items()})
        except urllib.error.HTTPError as error:
            error.close()
            answer.put({"status": str(error.code)})
        except Exception as error:  # it is raised by the thread that waits
            answer.put(error)

    # A daemon: the resolver can't be interrupted, and a dead name server takes half a minute to give up.
    threading.Thread(target=ask, daemon=True, name="laptime-probe").start()
    try:
        found = answer.get(timeout=timeout_s)
    except queue.Empty:
        raise UnreachableError(f"{shown(url)} does not answer within {timeout_s:.1f} s.") from None
    if isinstance(found, Exception):
        raise _away(url, found) from found
    return found


def _away(url: str, error: Exception) -> UnreachableError:
    return UnreachableError(f"{shown(url)} can't be reached ({_reason(error)}): check the address and the network.")


def read_url(url: str) -> bytes | None:
    """Reads a small document, of 1 MiB at most; None where there is none (404).

    Raises:
        UnreachableError: the server does not answer, or refuses.
    """
    try:
        with urllib.request.urlopen(_request(url, "GET"), timeout=_TIMEOUT_S) as reply:  # noqa: S310
            body: bytes = reply.read(1 << 20)
            return body
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise UnreachableError(f"{shown(url)} refuses with status {error.code}.") from error
    except _BROKEN as error:
        raise _away(url, error) from error


def download(url: str, to: Path, limit: int, moved: Moved) -> None:
    """Downloads into `to`, going on from what an interrupted download of the same version left there.

    Args:
        url: http or https.
        to: the file to write.
        limit: bytes at most; a server that sends more is cut off.
        moved: told the bytes of each block, those kept from before too.

    Raises:
        UnreachableError: the server does not answer, refuses, or stops before the end.
        DataError: it sends more than `limit`.
    """
    kept = kept_bytes(to, limit)
    if kept == limit:  # whole; the caller looks at its checksum
        moved(kept)
        return
    # Another version is sent whole, with status 200.
    wanted = {"Range": f"bytes={kept}-", "If-Range": noted_tag(to)} if kept else {}
    with _reply(url, wanted) as reply:
        received = kept if reply.status == 206 else 0
        if not received:
            note_tag(to, _version(reply))
        moved(received)
        with to.open("ab" if received else "wb") as file:
            for block in _blocks(reply, url):
                received += len(block)
                if received > limit:
                    raise DataError(
                        f"{shown(url)} is larger than the {limit} bytes that it may be: "
                        "check that it is what it should be."
                    )
                file.write(block)
                moved(len(block))


def _reply(url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    request = _request(url, "GET")
    for name, value in headers.items():
        request.add_header(name, value)
    try:
        reply: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        raise UnreachableError(f"{shown(url)} can't be had: the server answers with status {error.code}.") from error
    except _BROKEN as error:
        raise UnreachableError(f"{shown(url)} can't be reached ({_reason(error)}): try again.") from error
    return reply


def _version(reply: http.client.HTTPResponse) -> str:
    """What If-Range may name: a strong ETag, else the date; empty for neither."""
    etag = reply.headers.get("ETag") or ""
    return etag if etag and not etag.startswith("W/") else reply.headers.get("Last-Modified") or ""


def _blocks(reply: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    received = 0
    said = length_of(reply.headers.get("Content-Length"))
    try:
        while block := reply.read(_BLOCK):
            received += len(block)
            yield block
    except _BROKEN as error:
        raise UnreachableError(f"the download of {shown(url)} broke off ({_reason(error)}): try again.") from error
    # http.client ends a short body without an error where it is read in blocks.
    if said and received != said:
        raise UnreachableError(f"the download of {shown(url)} broke off after {received} of {said} bytes: try again.")


def _request(url: str, method: str) -> urllib.request.Request:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise DataError(f"{shown(url)} is no address ({error}): correct it.") from error
    if parts.scheme not in ("http", "https"):
        raise DataError(f"{shown(url)} is no http or https address: give one that starts with http:// or https://.")
    who, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), method=method)  # noqa: S310
    request.add_header("User-Agent", "laptime")
    if who:  # urllib takes it for a part of the host's name; a redirect does not get it
        word = base64.b64encode(urllib.parse.unquote(who).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {word}")
    return request


def shown(url: str) -> str:
    """A URL for a message: without a password, and without a query, which may hold a signature."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return shorten(url.partition("?")[0])
    host = parts.netloc.rpartition("@")[2]
    return shorten(urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", "")))


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, http.client.InvalidURL):  # its words repeat the address, query and all
        return "it is no valid address"
    return shorten(str(inner) or type(inner).__name__)


def length_of(said: str | None) -> int:
    """Bytes that a server announces; 0 where it says nothing that is a number."""
    return int(said) if said and said.isascii() and said.isdigit() and len(said) < 19 else 0
