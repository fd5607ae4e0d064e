"""Launcher `torchrun`: the ranks of a run as processes of torch's elastic launcher on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from laptime.host.gpus import others_on
from laptime.host.processes import RANKS_FILE, rank_log
from laptime.launchers.base import LOG, RECORD, Hooks, prepare, salvaged, with_cautions
from laptime.launchers.lock import run_locks
from laptime.launchers.process import how_ended, record_of, supervise
from laptime.records import RunRecord, write_record
from laptime.spec import RunSpec


def launch(spec: RunSpec, folder: Path, hooks: Hooks) -> RunRecord:
    """Runs a spec on its ranks while holding the lock of the devices; a rank that dies is named in the record."""
    logs = [rank_log(folder, rank).name for rank in range(1, spec.ranks)]
    words = ["laptime.ranks", str(spec.ranks), *prepare(spec, folder, RANKS_FILE, *logs)]
    with run_locks(spec, hooks.say) as locks:
        cautions = others_on(spec.device, spec.ranks)
        outcome = supervise(words, folder, hooks, locks, spec.timeout_s, spec.device)
    record = with_cautions(_record(spec, folder, outcome), cautions)
    write_record(folder / RECORD, record)
    return record


def _record(spec: RunSpec, folder: Path, code: int | None) -> RunRecord:
    """The first rank's record; where a rank died, one that names it, with what the first had kept."""
    fallen = folder / RANKS_FILE
    if not fallen.is_file():
        return record_of(spec, folder, code)
    found = json.loads(fallen.read_text(encoding="utf-8"))
    rank, exit_code = int(found["rank"]), int(found["exit_code"])
    written = record_of(spec, folder, 0) if (folder / RECORD).is_file() else None
    if written is not None and written.error:
        return written  # all failed alike, and the first could still say why
    log = folder / LOG if rank == 0 else rank_log(folder, rank)
    ended = how_ended(exit_code, log, spec, ", and all others were ended")
    return salvaged(spec, folder, f"rank {rank} of {spec.ranks} {ended} (see {log.name}).")
