from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence

from laptime.tracking.base import RunStatus
from laptime.tracking.owner import OpenRun, Owner, open_run, this_host, this_process
from laptime.tracking.sweep import sweep


class Runs:
    """A store of open runs."""

    def __init__(self, *owners: Owner) -> None:
        self.runs = [OpenRun(f"id{i}", f"key{i}", owner) for i, owner in enumerate(owners)]
        self.ended: list[tuple[str, str]] = []

    def open_runs(self, host: str) -> Sequence[OpenRun]:
        return self.runs

    def end(self, run_id: str, status: RunStatus, ended_at: float) -> None:
        self.ended.append((run_id, status))


def a_dead_process() -> Owner:
    code = "from laptime.tracking.owner import this_process as p; o = p(); print(o.pid, o.started)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid, started = done.stdout.split()
    return Owner(this_host(), int(pid), started)


def test_only_runs_of_dead_processes_of_this_host_are_ended() -> None:
    living = this_process()
    dead = a_dead_process()
    runs = Runs(
        living,
        dead,
        dataclasses.replace(dead, host="another-host"),
        dataclasses.replace(living, started="1"),  # the id is used again by a later process
    )
    assert [r.run_id for r in sweep(runs)] == ["id1", "id3"]
    assert runs.ended == [("id1", "KILLED"), ("id3", "KILLED")]


def test_an_owner_survives_its_tags() -> None:
    owner = this_process()
    assert open_run("id", {**owner.tags(), "laptime.key": "k"}) == OpenRun("id", "k", owner)


def test_nonsense_in_tags_is_a_dead_process_not_a_crash() -> None:
    run = open_run("id", {"laptime.host": this_host(), "laptime.pid": "-7x", "laptime.started": ""})
    assert run.owner.pid == 0
    huge = open_run("id", {"laptime.host": this_host(), "laptime.pid": "9" * 30})
    assert huge.owner.is_dead()
