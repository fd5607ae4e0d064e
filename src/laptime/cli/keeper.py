"""Runs a command and ends its whole tree when this process is asked to end or its parent dies, however it dies.

    python -m laptime.cli.keeper COMMAND ARGUMENT…

Servers start workers of their own, which outlive a server that is ended; the kernel tells only direct children of
a death. So each server of `laptime up` and `laptime ui` stands below a keeper.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType

from laptime.processes import die_with_parent, end_tree


def main(command: list[str]) -> int:
    """Runs the command to its end; returns its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    die_with_parent()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        finally:
            end_tree(process.pid, grace_s=1.5)


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
