"""Where processes of ours stand, written by handlers in C: when they crash, and when they are asked."""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import time
from pathlib import Path

# What asks a process of ours for its stacks; SIGUSR1 asks loader workers, who answer to their trainer.
_WHERE = signal.SIGUSR2
_ANSWER_S, _LOOK_EVERY_S = 0.05, 0.01
# It waits for its turn, or is blocked as by its own handler, which is writing.
_UNANSWERED = ("SigPnd", "ShdPnd", "SigBlk")
# A busy machine may leave a process without a turn for long; one that is stopped never answers.
_PATIENCE_S = 5.0


def tell_crashes() -> None:
    """Has this process and its forks write where their threads stood when a signal like SIGSEGV ends them, or when
    they are asked (`ask_where`).

    By handlers in C, which do nothing before. To descriptor 2, whatever a user's file makes of `sys.stderr`.
    """
    with contextlib.suppress(OSError):  # it is closed
        faulthandler.enable(file=2)
        faulthandler.register(_WHERE, file=2)


def ask_where(pid: int) -> None:
    """Has a process and all below it write where they stand, one after another, and waits until they have.

    Passes over what would die of it.
    """
    try:
        import psutil
    except ImportError:  # a machine with torch alone
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        root, until = psutil.Process(pid), time.monotonic() + _PATIENCE_S
        for process in (root, *root.children(recursive=True)):
            if _has(process.pid, _WHERE, "SigCgt"):
                # A main thread that holds the signal back, for another one to take, looks as if it were still writing.
                waited_for = () if _has(process.pid, _WHERE, "SigBlk") else _UNANSWERED
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(_WHERE)
                    while _has(process.pid, _WHERE, *waited_for) and time.monotonic() < until:
                        time.sleep(_LOOK_EVERY_S)
                    time.sleep(_ANSWER_S)  # whoever reads it needs a turn


def dies_of(pid: int, number: signal.Signals) -> bool:
    """Whether a signal would end a process, that has set no handler for it yet perhaps; False where nothing tells."""
    return Path(f"/proc/{pid}/status").is_file() and not _has(pid, number, "SigCgt", "SigIgn")


def _has(pid: int, number: signal.Signals, *masks: str) -> bool:
    """Whether a signal is in one of a process's masks, by their names in Linux's /proc."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        found = [int(line.partition(":")[2], 16) for line in lines if line.partition(":")[0] in masks]
        return any(mask >> (number - 1) & 1 for mask in found)
    return False
