"""Tracking addresses: checked before anything runs, masked before anything is written. Neither needs MLflow."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from laptime.errors import UsageError, shorten, without_logins
from laptime.places import expanded, small_scheme

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = ("http", "https")
# A host with its port, a managed store's short name: nothing that somebody would take for a folder's.
_SCHEMELESS = re.compile(r"(?!file:)[\w.-]+:[^/]|(databricks|databricks-uc|uc)$")
_KNOWN = "http://HOST:PORT, https://…, sqlite:////absolute/path.db or postgresql://…"


def check_uri(uri: str) -> str:
    """Checks a tracking URI's form, without a connection, and returns it with SQLite's path made absolute.

    Raises:
        UsageError: no URI, a scheme that MLflow does not store runs in, or one without a host or a file.
    """
    uri = small_scheme(uri.strip())
    scheme, separator, rest = uri.partition("://")
    dialect = scheme.split("+")[0]
    shown = shorten(masked(uri))
    if dialect in ("file", "") or uri.startswith("file:") or not separator:
        wrong = (
            "has no scheme"
            if not separator and _SCHEMELESS.match(uri)
            else "names a folder, and MLflow 3 keeps no runs in folders"
        )
        raise UsageError(f"the tracking URI {shown!r} {wrong}: give {_KNOWN}.")
    if dialect not in _DATABASES and scheme not in _SERVERS:
        raise UsageError(f"the tracking URI {shown!r} has an unknown scheme: give {_KNOWN}.")
    if dialect == "sqlite":
        return _absolute_sqlite(uri, scheme, rest)
    if not _host(uri):
        coded = " (in a password, / ? # and @ are written %2F %3F %23 and %40)" if "@" in uri else ""
        raise UsageError(f"the tracking URI {shown!r} names no host or a wrong port{coded}: give {_KNOWN}.")
    return uri


def is_http(uri: str) -> bool:
    """Whether the URI is a server's."""
    return uri.partition("://")[0] in _SERVERS


def is_sqlite(uri: str) -> bool:
    """Whether the URI is a SQLite file's."""
    return uri.partition("://")[0].split("+")[0] == "sqlite"


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store; None for any other."""
    return Path(check_uri(uri).partition(":///")[2].partition("?")[0]) if is_sqlite(uri) else None


def masked(uri: str) -> str:
    """The URI as it may be shown and stored: user, password and query are taken out."""
    if is_sqlite(uri):
        # Its host is empty; however many slashes were written, the path is absolute.
        return re.sub(r"^(sqlite[^:]*):/+", r"\1:////", re.split("[?#]", uri)[0])
    # A blank is in no address, but may be in a password.
    return re.split("[?#]", without_logins("".join(uri.split())))[0]


def without_credentials(uri: str) -> str:
    """The URI by which two addresses of one store are compared."""
    return masked(uri).replace("***@", "")


def _absolute_sqlite(uri: str, scheme: str, rest: str) -> str:
    name = rest.removeprefix("/")
    if not rest.startswith("/") or not name or ":memory:" in name:
        raise UsageError(
            f"the tracking URI {shorten(masked(uri))!r} names no file, so nothing would be kept: give sqlite:////absolute/path.db."
        )
    return f"{scheme}:///{expanded(name).absolute()}"


def _host(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname
