"""Runs a command and ends its whole tree when the command, this process or its parent ends, however it ends.

    python -m laptime.cli.keeper COMMAND ARGUMENT…

Servers start processes of their own, which outlive a server that is killed; the kernel tells only direct children of
a death. So each server of `laptime up` and `laptime ui` stands below a keeper, which adopts what the server leaves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

import psutil

from laptime.processes import adopt_orphans, die_with_parent, end_tree

# A flow run, which the kernel tells of its worker's death, marks its runs in that time.
_BY_THEMSELVES_S = 3.0


def main(command: list[str]) -> int:
    """Runs the command to its end; returns its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    die_with_parent()
    adopt_orphans()
    # There is but one thread here, so that what runs between fork and exec is safe.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent) as process:  # noqa: PLW1509
        try:
            return _code_of(process.pid)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        finally:
            end_tree(process.pid, grace_s=1.5)
            psutil.wait_procs(psutil.Process().children(), timeout=_BY_THEMSELVES_S)
            for orphan in psutil.Process().children():
                end_tree(orphan.pid, grace_s=1.0)


def _code_of(pid: int) -> int:
    """Waits for a child and reaps the orphans that end before it."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
