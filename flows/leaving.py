"""How a main job that is interrupted comes to its end, whether or not its temporary server is still there.

Ctrl-C in a terminal, and SIGTERM of what ends a whole group of processes, reach that server too, and Prefect goes on
calling the dead server for half a minute and more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

import psutil

from laptime.host.processes import end_tree

_ENDING_S = 3.5
# Set while this process is a main job: a flow that others run is theirs to end.
_ATTENDED = threading.Event()


def attend_signals() -> None:
    """Ends this process within seconds of Ctrl-C or SIGTERM. To be called from the main thread.

    Inside of a flow Prefect's own handler takes SIGTERM; there `leave_soon` is called for what it raises.
    """
    _ATTENDED.set()
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)


def leave_soon() -> None:
    """Of a main job: what has not come to its end in a few seconds is cut off."""
    if not _ATTENDED.is_set():
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    last = threading.Timer(_ENDING_S, leave)
    last.daemon = True
    last.start()


def leave() -> NoReturn:
    """Ends this process and its children, and says what becomes of the ladder."""
    for child in psutil.Process().children():
        end_tree(child.pid, grace_s=1.0)
    sys.stderr.write("laptime: interrupted; the run is marked, what was measured is kept, and --resume goes on.\n")
    sys.stderr.flush()
    os._exit(128 + signal.SIGINT)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """The interruption ends the training process and closes the journal at once; what is left then is cut off."""
    leave_soon()
    raise KeyboardInterrupt
