"""The command `laptime` as a process of its own, with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# What leads to stores of this machine's.
_STORES = ("MLFLOW_TRACKING_URI", "LAPTIME_DATA_MIRROR")


def surroundings(home: Path, **variables: str) -> dict[str, str]:
    """The environment of such a process."""
    others = {name: value for name, value in os.environ.items() if name not in _STORES}
    return {**others, "LAPTIME_HOME": str(home), **variables}


def laptime(
    home: Path, *arguments: object, folder: Path | None = None, patience_s: float = 240.0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, with further variables, in a folder or beside its home."""
    return subprocess.run(
        [sys.executable, "-m", "laptime", *map(str, arguments)],
        env=surroundings(home, **variables),
        cwd=folder or home.parent,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )
