"""A peer: a script of its own in `peers/`, which prints one line of JSON for each epoch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from laptime.devices import lock_name, missing_compiler
from laptime.host.processes import child_environment, plain_path
from laptime.launchers.lock import device_lock
from laptime.records import EpochRecord
from laptime.spec import RunSpec

PEERS = Path(__file__).with_name("peers")
# The kernel ends it with its parent, which a replaced program keeps; nothing of laptime runs beside the peer's own.
_BOUND = (
    "import os, sys; from laptime.host.processes import die_with_parent; die_with_parent(); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_NAMES_AN_ERROR = re.compile(r"[\w.]*(Error|Exception|Failed)\w*(:|$)")


def run_peer(spec: RunSpec, say: Callable[[str], None], log: Path) -> dict[str, object]:
    """What a peer's own process gives a record.

    Args:
        spec: whose variant is named after the script; its data is a store.
        say: takes sentences.
        log: where all that a failed one said on standard error goes.
    """
    name = spec.variant.removeprefix("peer-")
    options = ["--device", spec.device, "--epochs", str(spec.epochs)]
    missing = "" if spec.device == "cpu" else missing_compiler(spec.device)
    if name == "expert" and spec.device == "cpu":
        options += ["--mode", "none", "--batch-size", "512"]
    elif name == "expert" and missing:
        options += ["--mode", "none"]
    begin = time.time()
    try:
        with device_lock(lock_name(spec.device), say), _store_of(spec) as store:
            epochs = peer_epochs([sys.executable, str(PEERS / f"{name}.py"), str(store), *options], spec.timeout_s)
    except subprocess.TimeoutExpired:
        return {"status": "failed", "error": f"ran past its time-out of {spec.timeout_s:.0f} s"}
    except subprocess.CalledProcessError as error:
        log.write_text(error.stderr, encoding="utf-8")
        said = f"the peer ended with {error.returncode}; last words: {last_words(error.stderr)} (see {log.name})"
        return {"status": "failed", "error": said}
    notes = (f"without torch.compile: {missing}",) if name == "expert" and missing else ()
    return {"epochs": epochs, "started_at": begin, "ended_at": time.time(), "notes": notes}


@contextmanager
def _store_of(spec: RunSpec) -> Iterator[Path]:
    """Where the spec's samples are; a store may hold one class after the other, so the first of them are no sample."""
    if spec.limit_train is None and spec.limit_test is None:
        yield Path(spec.data.path)
        return
    from peer_data import cut_store  # imports torch, for seconds

    with tempfile.TemporaryDirectory() as scratch:
        yield cut_store(spec, Path(scratch) / "store")


def last_words(text: str) -> str:
    """The last line that names an error, since torch's compiler puts advice behind it; else the last one."""
    words = text.strip().splitlines() or ["nothing"]
    return next((line for line in reversed(words) if _NAMES_AN_ERROR.match(line)), words[-1])[:300]


def peer_epochs(command: list[str], timeout_s: float | None = None) -> tuple[EpochRecord, ...]:
    """The epochs that a peer's command prints, which ends with this process; raises what subprocess.run does."""
    bound, environment = [sys.executable, *plain_path(), "-c", _BOUND, *command], child_environment(ours=False)
    done = subprocess.run(bound, capture_output=True, text=True, timeout=timeout_s, check=True, env=environment)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return tuple(EpochRecord(index=index, **row) for index, row in enumerate(rows))
