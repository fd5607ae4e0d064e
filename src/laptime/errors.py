"""What can go wrong: every error a user can cause is one sentence that names the value, the place and the remedy."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

# Variables whose values are nobody's business, whatever library put them into its message.
_SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|CREDENTIAL|ACCESS_KEY")
_SHORTEST_SECRET = 6
# User and password of an address. A password that should have been written with % may hold what else ends them: where a
# colon comes first, all up to the last @ is theirs, but for the port of http, which digits and an end make.
_LOGIN = re.compile(
    r"(?<=://)(?:(?<!http://)(?<!https://)[^/\s?#:@]*:\S*@|[^/\s?#:@]*:(?!\d*(?:[/?#\s]|$))\S*@|[^/\s?#]*@)"
)


class LaptimeError(Exception):
    """An error to show as one sentence, without a traceback.

    Names of users and words of libraries stand in it: control characters and secrets are taken out here, once for all.
    """

    exit_code = 1

    def __init__(self, sentence: str = "") -> None:
        super().__init__(printable(without_secrets(sentence)))


class UsageError(LaptimeError):
    """The command or a parameter of it makes no sense."""

    exit_code = 2


class DataError(LaptimeError):
    """Data that can't be had, can't be read or isn't what it claims to be."""


class UnreachableError(DataError):
    """A source of data that does not answer; the next source may."""


class TrackingError(LaptimeError):
    """The tracking server does not answer or refuses."""


class RefusedError(TrackingError):
    """The tracking server refuses one thing for good: it is too large, say, or its run was deleted."""

    def __init__(self, message: str, reason: str, deleted: bool) -> None:
        super().__init__(message)
        self.reason, self.deleted = reason, deleted


class RunError(LaptimeError):
    """A run that can't be started or went wrong."""


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """Builds the error for a name that does not exist, with the nearest that do."""
    names = sorted(known)
    near = [other for other in names if other.lower() == name.lower()]
    near = near or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}."
    return UsageError(f"unknown {what} {shorten(name, 60)!r}: {hint}")


def refusal(error: LaptimeError) -> dict[str, Any]:
    """What a child process answers where it refuses; `answered` reads it."""
    return {"error": str(error), "kind": type(error).__name__, "exit_code": error.exit_code}


def answered(fields: Mapping[str, Any]) -> LaptimeError:
    """The error that a child process answered with: its `error` in the class that `kind` names."""
    named = globals().get(str(fields.get("kind")))
    kind = named if isinstance(named, type) and issubclass(named, LaptimeError) else LaptimeError
    return kind(str(fields.get("error")))


def in_words(error: OSError) -> str:
    """One sentence for what the system refused: the place, its reason, what to look at."""
    place = f"{shorten(str(error.filename))}: " if error.filename else ""
    return f"{place}{error.strerror or error}: check that the place exists, is writable and has room."


# What a machine lacks, by words of what then fails in somebody's code.
_SHARED = "loader workers pass their batches through /dev/shm, which"
_FULL = f"{_SHARED} has too little room: give it more, as by docker run --shm-size=2g"
_LACKS = {
    "AF_UNIX path too long": "the path of the temporary folder is too long for the sockets of loader workers: set "
    "TMPDIR to a shorter one, such as /tmp",
    "unable to allocate shared memory": _FULL,
    "out of shared memory": _FULL,
    "mounted with noexec": "the temporary folder is mounted with noexec, and torch.compile can't load what it builds "
    "there: set TORCHINDUCTOR_CACHE_DIR to another folder",
    "is killed by signal: Killed": "a loader worker was killed (signal 9), which the system does when memory runs out: "
    "take fewer workers or make the batch smaller",
    "unable to open shared memory object": f"{_SHARED} can't be written here: mount it anew",
}


def lacking(error: BaseException) -> str | None:
    """What the machine lacks, with the remedy and no full stop, where that is behind an error; None otherwise."""
    return next((told for words, told in _LACKS.items() if words in str(error)), None)


def shorten(text: str, limit: int = 120) -> str:
    """Cuts a user's text for a message, without control characters and secrets."""
    clean = printable(without_secrets(text), "?")
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def in_digits(value: float) -> str:
    """A count or a rate for a message: whole from 10 on, below two digits that mean something."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def printable(text: str, instead: str = " ") -> str:
    """The text on one line and without control characters, marks that turn the writing round and half characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else instead for c in text)


def without_logins(text: str) -> str:
    """The text with `***` in place of users and passwords of addresses."""
    return _LOGIN.sub("***@", text)


def without_secrets(text: str) -> str:
    """The text without users and passwords of addresses, their queries, and values of variables that hold a secret.

    A query may hold a signature that stands for a password (S3's presigned addresses, tokens).
    """
    if "://" in text:
        text = without_logins(text)
        text = re.sub(r"(://[^\s?#'\"]*)\?[^\s#'\"]*", r"\1?***", text)
        text = re.sub(r"\?[^\s?#'\"=]+=[^\s#'\"]*", "?***", text)  # of one with a blank in it
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET.search(name.upper()):
            text = text.replace(value, "***")
    return text
