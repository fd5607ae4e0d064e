"""Where processes of ours stand, written by handlers in C: when they crash, and when they are asked."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import time
from pathlib import Path

# What asks a process of ours for its stacks; SIGUSR1 asks loader workers, who answer to their trainer.
_WHERE = signal.SIGUSR2
_ANSWER_S = 0.05


def tell_crashes() -> None:
    """Has this process and its forks write where their threads stood when a signal like SIGSEGV ends them, or when
    they are asked (`ask_where`).

    By handlers in C, which do nothing before. To descriptor 2, whatever a user's file makes of `sys.stderr`.
    """
    with contextlib.suppress(OSError):  # it is closed
        faulthandler.enable(file=2)
        faulthandler.register(_WHERE, file=2)


def ask_where(pid: int) -> None:
    """Has a process and all below it write where they stand, one after another; passes over what would die of it."""
    try:
        import psutil
    except ImportError:  # a machine with torch alone
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            if _catches(process.pid, _WHERE):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(_WHERE)
                    time.sleep(_ANSWER_S)  # their words would mingle


def _catches(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        caught = next(line.partition(":")[2] for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (number - 1) & 1)
    return False
