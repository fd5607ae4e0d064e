"""At each command's start: runs of dead processes are ended in the store; where there can be none it costs nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

from laptime.places import find_places

# These do it themselves, with what they have to say about it.
_THEMSELVES = ("optimize", "sync")
# After a store did not answer, commands leave it alone for so long.
_PAUSE_S = 60.0
# What waits in journals is sent for so long before a command; the rest goes with the next one, or laptime sync.
_ENOUGH_S = 2.0


def sweep_first(command: str | None) -> None:
    """Sends the journals that dead processes left and ends their runs; whatever goes wrong, the command goes on."""
    if command is None or command in _THEMSELVES:
        return
    places = find_places()
    if not any(_may_be_open(path) for path in places.journal.glob("*.jsonl")):
        return
    mark = places.journal / ".asked"
    try:
        from laptime.tracking.courier import short_tries
        from laptime.tracking.sync import left_open, sync

        if not left_open(places) or _asked_lately(mark):
            return
        mark.touch()
        until = time.monotonic() + _ENOUGH_S
        with short_tries():  # else a server that answers the first question alone would hold any command for minutes
            sync(places, places.mlflow_uri, lambda _: None, enough=lambda: time.monotonic() > until)
        mark.unlink()
    except Exception:  # noqa: S110 - whatever is wrong with the store, it has nothing to do with this command
        pass


def _may_be_open(journal: Path) -> bool:
    """Whether something of a journal may not have arrived, or not have ended; as `is_settled` of the tracking package.

    Read without that package, whose import would take half as long as all that `laptime list` does.
    """
    try:
        state = json.loads(journal.with_suffix(".state.json").read_text(encoding="utf-8"))
        return bool(journal.stat().st_size != state["size"])
    except (OSError, ValueError, LookupError, TypeError):
        return True


def _asked_lately(mark: Path) -> bool:
    try:
        return 0 <= time.time() - mark.stat().st_mtime < _PAUSE_S  # not of a clock that was ahead then
    except OSError:
        return False
