"""Settings for a flow run without a server. To be called before prefect is imported, which reads them then."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import sys
from pathlib import Path

from pydantic import ValidationError

from laptime.errors import LaptimeError, UsageError, in_words, shorten
from laptime.places import expanded, find_places

# Bytes for Prefect's database and its journal, which hold 6 MiB after a short ladder.
_ROOM = 16 * 2**20


def use_embedded_server() -> None:
    """Sets what the environment leaves open: a server that lives as long as this process, stores under LAPTIME_HOME.

    `prefect.toml` names the server of `laptime up`; an empty address takes it back. Ends the process with one sentence
    where there can be no stores.
    """
    try:
        places = find_places()
        places.prefect.mkdir(parents=True, exist_ok=True)
        _check_home(places.prefect)
    except (LaptimeError, OSError) as error:
        sys.stderr.write(f"laptime: {in_words(error) if isinstance(error, OSError) else error}\n")
        raise SystemExit(error.exit_code if isinstance(error, LaptimeError) else 1) from error
    os.environ.setdefault("PREFECT_API_URL", "")
    os.environ.setdefault("PREFECT_HOME", str(places.prefect))
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "ERROR")
    # Its default of 20 s is what a busy machine needs for imports alone.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    _require_settings()


def _require_settings() -> None:
    """Imports prefect, which reads all PREFECT_ variables then; ends the process where it can't take one."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # it tells the same itself, in many lines
            importlib.import_module("prefect.settings").get_current_settings()
    except ValidationError as error:
        first = error.errors()[0]
        name, given = "_".join(str(part) for part in first["loc"]).upper(), shorten(repr(first["input"]), 40)
        sys.stderr.write(
            f"laptime: Prefect can't take the variable PREFECT_…{name} ({first['msg']}, given {given}): correct it or "
            "leave it out.\n"
        )
        raise SystemExit(UsageError.exit_code) from error


def _check_home(usual: Path) -> None:
    """Refuses a folder that a server of this process can't write its database to: it would be waited for in vain.

    Args:
        usual: the folder that is taken where PREFECT_HOME names none.

    Raises:
        UsageError: it can't.
    """
    if any(os.environ.get(name) for name in ("PREFECT_API_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL")):
        return
    named = os.environ.get("PREFECT_HOME")
    home, free = expanded(named) if named else usual, 0
    try:
        home.mkdir(parents=True, exist_ok=True)
        if os.access(home, os.W_OK):
            free = shutil.disk_usage(home).free
    except OSError:
        pass
    said = f"PREFECT_HOME, {shorten(named)!r}," if named else f"{shorten(str(usual))!r}"
    if free < _ROOM:
        why = f"has {free / 2**20:.1f} MiB of the {_ROOM >> 20} free that it needs" if free else "can't be written"
        raise UsageError(
            f"{said} {why}, and a flow without a server has its database there: set PREFECT_HOME to another folder"
            f"{', or leave it out' if named else ''}."
        )
