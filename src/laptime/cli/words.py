"""How to call things from here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def command(name: str) -> str:
    """A console script by name where it is on the path, else beside the interpreter that runs this."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name) or not beside.exists():
        return name
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)
