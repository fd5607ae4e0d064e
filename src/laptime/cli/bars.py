"""Where a progress bar can be drawn."""

from __future__ import annotations

import os
import sys

# What IPython's kernel sets for the programs that it starts, whoever has started it.
_KERNEL = {"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat"}


def bars_are_drawn() -> bool:
    """Whether standard error is a terminal that draws over what stands there.

    A notebook's `!laptime optimize …` has a terminal, too, but what shows it keeps each picture of a bar, ten a second.
    """
    return sys.stderr.isatty() and not _KERNEL.items() <= os.environ.items()
