"""How `scripts/bench gpu` ends before its time: by Ctrl-C, SIGTERM, a closed terminal, or its own last limit."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import NoReturn

from laptime.errors import LaptimeError, in_words, shorten

# What is left of a lent machine's time behind the budget is for the table: what hangs outside of a process, in the wait
# for a device say, would else take the whole of it.
OVER_S = 40.0
_LONGEST_S = 1e8
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


class Stopped(KeyboardInterrupt):
    """This process was asked to end; children are put away on the way out, as at Ctrl-C.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def code(self) -> int:
        """The exit code: a shell's for a signal, that of a failure where it was its own limit."""
        return 1 if self.number == signal.SIGALRM else 128 + self.number

    def sentence(self, kept: str, budget_s: float) -> str:
        """What is said of it.

        Args:
            kept: what stays, and what goes on from there; what was noted on the way says more, where something was.
            budget_s: what was asked for.
        """
        ended = f"interrupted by {self}"
        if self.number == signal.SIGALRM:
            ended = f"ended, since its budget of {budget_s:g} s was over for {OVER_S:g} s"
        notes = getattr(self, "__notes__", [])
        return " ".join([f"scripts/bench gpu: {ended}{'.' if notes else f': {kept}.'}", *notes])


def hear_signals() -> None:
    """Has signals raise `Stopped` from here on; what whoever started this has ignored stays ignored."""
    for number in _HEARD:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)


def limit(budget_s: float, begin: float) -> None:
    """Ends this process by itself OVER_S behind its budget, which began at that moment of the monotonic clock."""
    left = budget_s + OVER_S - (time.monotonic() - begin)
    signal.setitimer(signal.ITIMER_REAL, min(max(left, 1e-3), _LONGEST_S))


def told(error: Exception) -> str:
    """What went wrong, in a sentence where somebody has one for it."""
    if isinstance(error, OSError):
        return in_words(error)
    return str(error) if isinstance(error, LaptimeError) else f"{type(error).__name__}: {shorten(str(error), 300)}"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    # The first one counts: people press Ctrl-C again, and schedulers send more, while children are put away.
    for heard in _HEARD:
        signal.signal(heard, signal.SIG_IGN)
    raise Stopped(number)
