"""An object of one of Lightning's classes, out of what a user's file names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laptime.data.lightning.refused import is_lightning
from laptime.data.own.importing import refuse_arguments
from laptime.errors import UsageError, shorten

# A class, a function that gives it: as for other workloads.
_MOST_CALLS = 3


def made_of(given: Any, name: str, file: Path) -> Any:
    """An object of Lightning's class `name`, out of it, its class or a function that makes it; raises UsageError."""
    found = given
    for _ in range(_MOST_CALLS):
        if isinstance(found, type) or (callable(found) and not is_lightning(found, name)):
            refuse_arguments(found, file)
            found = found()
    if not is_lightning(found, name):
        raise UsageError(f"{shorten(repr(given))} is no {name} and makes none: name its class.")
    return found
