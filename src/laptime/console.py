"""The console script's first lines: they need nothing that a change under test may have broken."""

from __future__ import annotations

import sys

_INVALID = 4


def main() -> None:
    """Runs the command line.

    Python ends with 1 where an import fails, and a gate promises that 1 is a measured regression and nothing else.
    """
    try:
        from laptime.cli import main as command
    except Exception as error:
        if "gate" not in sys.argv[1:3]:
            raise
        sys.stderr.write(f"laptime: the gate's own code can't be loaded: {type(error).__name__}: {error}\n")
        sys.exit(_INVALID)
    command()
