"""The console script's first lines: they need nothing that a change under test may have broken."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
import traceback
from typing import TextIO

_USAGE, _INVALID, _INTERRUPTED = 2, 4, 130


def main() -> None:
    """Runs the command line; a gate's own way out stands here alone."""
    open_what_is_closed()
    write_what_can_be(sys.stdout)
    atexit.register(leave_garbage)
    if next((word for word in sys.argv[1:] if not word.startswith("-")), "") == "gate":
        sys.exit(_gate())
    try:
        from laptime.cli import main as command

        command()
    except KeyboardInterrupt:  # while modules are imported; commands have words for it
        sys.exit(_INTERRUPTED)


def leave_garbage() -> None:
    """Has the interpreter's teardown search nothing of what is there: with MLflow or Prefect half a second."""
    if "torch" not in sys.modules:  # some of its bindings complain at length of what is never freed
        gc.freeze()


def open_what_is_closed() -> None:
    """Has a standard stream that was closed by whoever started this (`2>&-`) lead to nowhere.

    Python has None for it, and the next file that is opened, a journal say, would take its number and all that is
    written there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def write_what_can_be(stream: TextIO | None) -> None:
    """Has a stream that is no UTF-8 (an older terminal, a log in ASCII) show `?` for a dash or a Greek letter.

    Python would end with a traceback there, after hours of training.
    """
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")


def _gate() -> int:
    """The exit code of a gate, which promises that 1 is a measured regression and nothing else.

    Python ends with 1 where an import or anything else fails, and so does click where a pipe is closed, so all that is
    raised from the first import on ends here.
    """
    loaded = False
    try:
        from laptime.cli import app

        loaded = True
        return int(app(standalone_mode=False) or 0)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as left:
        return int(left.code) if left.code in (0, _USAGE) else _INVALID
    except BaseException as error:
        return _told(error, loaded)


def _told(error: BaseException, loaded: bool) -> int:
    """Says what was raised, and which exit code it has; laptime's and click's errors are told by what they can do."""
    code = _USAGE if getattr(error, "exit_code", None) == _USAGE else _INVALID
    with contextlib.suppress(OSError, ValueError):  # nobody listens any more
        _say(error, loaded)
    return code


def _say(error: BaseException, loaded: bool) -> None:
    show = getattr(error, "show", None)
    if "--debug" in sys.argv:
        traceback.print_exception(error)
    elif show is not None:
        show()
    else:
        words = str(error) if hasattr(error, "exit_code") else f"{type(error).__name__}: {error}"
        begin = "" if loaded else "the gate's own code can't be loaded: "
        sys.stderr.write(f"laptime: {begin}{words}\n")
