from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from laptime.tracking.base import RunStatus
from laptime.tracking.owner import OpenRun, Owner, living_namespaces, open_run, this_boot, this_host, this_process
from laptime.tracking.sweep import sweep


class Runs:
    """A store of open runs."""

    def __init__(self, *owners: Owner) -> None:
        self.runs = [OpenRun(f"id{i}", f"key{i}", owner) for i, owner in enumerate(owners)]
        self.ended: list[tuple[str, str]] = []

    def open_runs(self, tag: str, value: str) -> Sequence[OpenRun]:
        return [run for run in self.runs if run.owner.tags().get(tag) == value]

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
        dataclasses.replace(dead, host="container:1", boot="another kernel"),
        dataclasses.replace(dead, host="another-host", boot=this_boot()),
    )
    assert [r.run_id for r in sweep(runs)] == ["id1", "id3"]
    assert runs.ended == [("id1", "KILLED"), ("id3", "KILLED")]


def test_a_container_is_gone_when_its_namespace_is_and_only_where_all_can_be_seen(tmp_path: Path) -> None:
    def process(name: str, namespace: str) -> None:
        (tmp_path / name / "ns").mkdir(parents=True)
        (tmp_path / name / "ns" / "pid").symlink_to(f"pid:[{namespace}]")

    process("self", "4026531836")
    process("70", "4026532178")
    assert living_namespaces(tmp_path) is None, "the first process is hidden"
    process("1", "4026531836")
    (tmp_path / "71").mkdir()
    assert living_namespaces(tmp_path) == {"4026531836", "4026532178"}
    process("72", "4026532178")
    (tmp_path / "self" / "ns" / "pid").unlink()
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026532178]")
    assert living_namespaces(tmp_path) is None, "seen out of a container"
    here = living_namespaces()
    gone = dataclasses.replace(this_process(), host="container:1")
    assert gone.is_dead() == (here is not None)
    if here is not None:
        assert not dataclasses.replace(gone, host=f"container:{here.pop()}").is_dead()


def test_an_owner_survives_its_tags() -> None:
    owner = this_process()
    assert open_run("id", {**owner.tags(), "laptime.key": "k"}) == OpenRun("id", "k", owner)


def test_nonsense_in_tags_is_a_dead_process_not_a_crash() -> None:
    run = open_run("id", {"laptime.host": this_host(), "laptime.pid": "-7x", "laptime.started": ""})
    assert run.owner.pid == 0
    huge = open_run("id", {"laptime.host": this_host(), "laptime.pid": "9" * 30})
    assert huge.owner.is_dead()
