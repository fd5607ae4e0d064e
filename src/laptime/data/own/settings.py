"""Which files of settings a user's code reads (Hydra's YAML, a JSON beside it): they are a part of the training.

Heard from Python's audit events, since each library has a reader of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SUFFIXES = {".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".gin", ".env"}
# Larger or more ones are data.
_LARGEST, _MOST = 2**20, 100
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# What was opened, and whether something has written there; None until somebody listens.
_opened: dict[Path, bool] | None = None


def listen() -> None:
    """Begins anew to note the files that this process opens."""
    global _opened  # noqa: PLW0603 - a hook is this process's, and stays
    if _opened is None:
        sys.addaudithook(_hear)
    _opened = {}


def settings_read() -> tuple[Path, ...]:
    """The settings that were read since `listen`, whole paths; none that this process has written itself."""
    read = sorted(path for path, written in (_opened or {}).items() if not written)
    return tuple(path for path in read if path.is_file() and path.stat().st_size <= _LARGEST)[:_MOST]


def _hear(event: str, told: Sequence[Any]) -> None:
    if event == "open":
        _note(told[0], bool((told[2] or 0) & _WRITING))
    elif event == "os.rename":  # as what is written whole or not at all comes to its name
        _note(told[1], True)


def _note(name: object, written: bool) -> None:
    if _opened is not None and isinstance(name, str) and Path(name).suffix.lower() in _SUFFIXES:
        place = Path(name).absolute()
        _opened[place] = written or _opened.get(place, False)
