"""A user's own file that is silent while it is looked at: told with its line, and waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from laptime.host.stacks import ask_where
from laptime.own.user_code import hang_place

_ANSWER_S = 0.1


@dataclass(frozen=True)
class Silence:
    """What is done about it.

    Attributes:
        say: takes a sentence.
        after_s: seconds without a word after which it is said; a long download is legitimate, so nothing is ended.
    """

    say: Callable[[str], None]
    after_s: float = 60.0


class Listening:
    """To a process that imports a user's file and says something by its output or in its log, or nothing for long.

    Its place is told once, and anew where it stands elsewhere after as long a silence.
    """

    def __init__(self, silence: Silence, file: Path, log: IO[bytes]) -> None:
        self._silence, self._file, self._log = silence, file, log
        self._size, self._since = 0, time.monotonic()
        self._told: str | None = None

    def heard(self) -> None:
        """It has said something just now."""
        self._since = time.monotonic()

    def look(self, pid: int) -> None:
        """Says where the process and those below it stand once they have been silent for long."""
        size = self._written()
        if size != self._size:
            self._size = size
            self.heard()
        if time.monotonic() - self._since < self._silence.after_s:
            return
        self.heard()
        ask_where(pid)
        time.sleep(_ANSWER_S)
        self._size = self._written()
        # By its place: the log's own position is that of whoever writes.
        answer = os.pread(self._log.fileno(), self._size - size, size).decode(errors="replace")
        if (place := hang_place(answer, self._file)) != self._told:
            self._told = place
            self._silence.say(
                f"{self._file.name} has been silent for {self._silence.after_s:g} s while it is looked at{place}: it "
                "is waited for, and Ctrl-C ends it"
            )

    def _written(self) -> int:
        return os.fstat(self._log.fileno()).st_size
