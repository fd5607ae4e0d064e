"""Runs a command and ends its whole tree when the command, this process or its parent ends, however it ends.

    python -m laptime.host.keeper COMMAND ARGUMENT…

Servers and a user's own scripts start processes of their own, which outlive them; the kernel tells only direct children
of a death. So each server of `laptime up` and `laptime ui`, and each training of a gate, stands below a keeper, which
adopts what the command leaves. It ends as the command did, by the same signal. See `laptime.host.processes.kept_command`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from types import FrameType

import psutil

from laptime.host.processes import adopt_orphans, die_with_parent, end_tree, undisturbed

# A flow run, which the kernel tells of its worker's death, marks its runs in that time.
_BY_THEMSELVES_S = 3.0
# As of a shell.
_NOT_STARTED = 126


def main(command: list[str]) -> int:
    """Runs the command to its end; returns its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    die_with_parent()
    adopt_orphans()
    try:
        process = _started(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]!r} can't be started: {error.strerror}\n")
        return _NOT_STARTED
    with process:
        try:
            code = _code_of(process.pid)
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
        finally:
            with undisturbed():
                end_tree(process.pid, grace_s=1.5)
                psutil.wait_procs(psutil.Process().children(), timeout=_BY_THEMSELVES_S)
                for orphan in psutil.Process().children():
                    end_tree(orphan.pid, grace_s=1.0)
    if code < 0:
        _end_by(-code)
    return code


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    """The command as a child that ends with this process.

    There is but one thread here, so that what runs between fork and exec is safe. What this process was given open, a
    device's lock say, is the command's.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=die_with_parent,  # noqa: PLW1509
    )


def _code_of(pid: int) -> int:
    """Waits for a child and reaps the orphans that end before it."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _end_by(number: int) -> None:
    """Ends this process by the signal that ended the command; without a core of its own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
