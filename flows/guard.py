"""Ends the temporary server of a main job that was killed; Prefect itself ends it only on an orderly way out.

python -m flows.guard MARK    waits for its parent's end, then ends the server that carries the mark
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time

import psutil

from laptime.host.processes import child_environment, die_with_parent, end_tree

_MARK = "LAPTIME_MAIN_JOB"
_SERVER = "prefect.server.api.server:create_app"
_LOOK_EVERY_S = 0.5
# Held, since a process that nobody holds is complained about.
_GUARDS: list[subprocess.Popen[bytes]] = []


def guard_server() -> None:
    """Marks the server that this process will start, and starts a guard that outlives this process by a moment.

    To be called from the main thread: the kernel tells of the end of the thread that started a child.
    """
    mark = os.environ[_MARK] = secrets.token_hex(8)
    nowhere = subprocess.DEVNULL
    command = [sys.executable, "-m", "flows.guard", mark]
    _GUARDS.append(subprocess.Popen(command, env=child_environment(), stdin=nowhere, stdout=nowhere, stderr=nowhere))


def main(mark: str) -> None:
    """Waits for the end of the parent, however it comes; Ctrl-C, which reaches this process too, is not that end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    parent = os.getppid()
    die_with_parent()
    if sys.platform == "linux":
        signal.sigwait((signal.SIGTERM,))
    while sys.platform != "linux" and os.getppid() == parent:  # nobody tells
        time.sleep(_LOOK_EVERY_S)
    for process in psutil.process_iter():
        if _is_server(process, mark):
            end_tree(process.pid)


def _is_server(process: psutil.Process, mark: str) -> bool:
    try:
        return _SERVER in process.cmdline() and process.environ().get(_MARK) == mark
    except psutil.Error:  # it has just ended, or is another user's
        return False


if __name__ == "__main__":
    main(sys.argv[1])
