"""Launcher `inline`: the worker in this process, for debuggers. No timeout, and no protection from a crash."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import cast

from laptime.host.gpus import others_on
from laptime.host.processes import apart_from_ranks
from laptime.launchers.base import PROGRESS, RECORD, Hooks, ProgressReader, prepare, with_cautions
from laptime.launchers.lock import run_locks
from laptime.records import SYSTEM, RunRecord, write_record
from laptime.spec import RunSpec


def launch(spec: RunSpec, folder: Path, hooks: Hooks) -> RunRecord:
    """Imports the worker by name (this process then holds torch) and runs the spec."""
    prepare(spec, folder, SYSTEM)  # which is of another launcher's try; nobody samples here
    worker = importlib.import_module("laptime.worker")
    given = sys.argv  # a file of the user's has it for its own
    try:
        with run_locks(spec, hooks.say) as locks, apart_from_ranks():
            cautions = others_on(spec.device, len(locks))
            record = with_cautions(cast(RunRecord, worker.run(spec, folder)), cautions)
    finally:
        sys.argv = given
    for event in ProgressReader(folder / PROGRESS).events():
        hooks.on_event(event)
    write_record(folder / RECORD, record)
    return record
