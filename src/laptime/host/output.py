"""What a process of ours says by its output, which a user's file may have closed or replaced."""

from __future__ import annotations

import contextlib
import sys
import traceback

# A closed file, a closed descriptor, a pipe that nobody reads any more, text that a stream of the user's can't take.
_DEAF = (OSError, ValueError)


def say(text: str) -> None:
    """Prints a line to stdout where there is one: what is said is worth no failed run."""
    with contextlib.suppress(*_DEAF):
        print(text, flush=True)  # noqa: T201 - the process's own output


def say_error(text: str) -> None:
    """Prints a line to stderr, see `say`."""
    with contextlib.suppress(*_DEAF):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def say_traceback() -> None:
    """Prints the traceback of the error that is being handled to stderr, see `say`."""
    with contextlib.suppress(*_DEAF):
        traceback.print_exc()


def flush() -> None:
    """Writes what is still held of both."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, *_DEAF):  # None where the file has taken it away
            stream.flush()
