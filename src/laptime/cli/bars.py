"""Where a progress bar can be drawn."""

from __future__ import annotations

import os
import sys


def bars_are_drawn() -> bool:
    """Whether standard error is a terminal that draws over what stands there.

    A notebook's `!laptime optimize …` has a terminal, too, but what shows it keeps each picture of a bar, ten a second.
    Its kernels name the process they belong to in JPY_PARENT_PID.
    """
    return sys.stderr.isatty() and "JPY_PARENT_PID" not in os.environ
