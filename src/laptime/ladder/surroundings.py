"""What a ladder runs in: the machine, probed in a process of its own, and the commit."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path

from laptime.devices import lock_name
from laptime.errors import RunError
from laptime.host.processes import death
from laptime.launchers.lock import device_lock
from laptime.launchers.process import run_child
from laptime.own.user_code import crash_place
from laptime.places import Places
from laptime.records import ProbeRecord
from laptime.spec import DataSpec


def run_probe(
    what: tuple[str, str],
    places: Places,
    say: Callable[[str], None],
    wanted: Collection[str] | None = None,
    limit: int | None = None,
    limit_s: float | None = None,
) -> ProbeRecord:
    """Probes the machine in a process of its own, since it needs torch, while no timed run holds the device.

    Args:
        what: workload and device.
        places: where the result stands meanwhile.
        say: takes sentences.
        wanted: optimizations whose gain is of interest; None for those of the device's whole ladder.
        limit: training samples of the ladder; None for all.
        limit_s: seconds after which it is ended; None for as long as it takes.

    Raises:
        RunError: it left no result.
    """
    workload, device = what
    result = places.home / f"probe-{secrets.token_hex(4)}.json"
    lines: list[str] = []
    try:
        with device_lock(lock_name(device), say):
            only = [] if wanted is None else [f"--only={','.join(sorted(wanted))}"]
            begin, words = time.monotonic(), [workload, device, str(result), *limited(limit), *only]
            code = run_child("laptime.preflight.probe", words, lines.append, limit_s)
        if code < 0 and limit_s is not None and time.monotonic() - begin >= limit_s:
            raise RunError(f"probing this machine took more than {limit_s:.0f} s and was ended: try again.")
        if code or not result.is_file():
            raise RunError(_failed(code, lines, workload))
        return ProbeRecord.model_validate_json(result.read_text(encoding="utf-8"))
    finally:
        result.unlink(missing_ok=True)


def _failed(code: int, lines: list[str], workload: str) -> str:
    """How a probe ended without a result, with the line of a user's own file where that crashed."""
    if code < 0:
        own = Path(DataSpec.model_validate_json(workload).path) if workload.startswith("{") else None
        place = crash_place("\n".join(lines), own)
        return f"the process that probes this machine {death(code)}{place}: try again."
    return f"probing this machine failed: {lines[-1] if lines else f'its process {death(code)} and said nothing.'}"


def limited(limit: int | None) -> list[str]:
    """The argument that tells a probe how many training samples its ladder has; none for all."""
    return [] if limit is None else [f"--limit={limit}"]


def commit(untracked: bool = True) -> str | None:
    """The commit of the working directory, with `+` when it is changed; outside version control LAPTIME_COMMIT or None.

    An image has no checkout, and the variable.

    Args:
        untracked: whether a file that git does not know is a change, as a new module is, and results are not.
    """
    files = [] if untracked else ["--untracked-files=no"]
    try:
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain", *files], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("LAPTIME_COMMIT") or None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
