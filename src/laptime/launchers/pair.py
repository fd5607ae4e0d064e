"""Two runs side by side on one CPU, an epoch of one and then of the other: what is nearly as fast is told apart so.

Two processes one after the other see two different minutes of a shared machine; epochs by turns see the same ones.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from laptime.host.gpus import others_on
from laptime.host.memory import allowed_memory
from laptime.host.processes import end_tree, tree_cpu_s
from laptime.host.scratch import scratch
from laptime.host.stacks import ask_where
from laptime.host.turns import TURNS
from laptime.launchers.base import RECORD, Hooks, with_cautions
from laptime.launchers.lock import run_locks
from laptime.launchers.process import Running, record_of, running, worker_words
from laptime.launchers.turns import Seat, Turns
from laptime.records import RunRecord, write_record
from laptime.spec import RunSpec

Job = tuple[RunSpec, Path]

_LOOK_EVERY_S = 0.1
# Of the memory that is there: what else runs needs some, and a peak can be missed.
MOST_MEMORY = 0.7
# Bytes; with what stands behind it a socket's path may have about a hundred.
_LONGEST_FOLDER = 60


def sockets_here() -> bool:
    """Whether turns can be handed out here: a Unix socket's path is short, and a temporary folder's may not be."""
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER


def room_for(peaks_mib: Sequence[float]) -> bool:
    """Whether processes of these peaks fit into this machine's memory at the same time."""
    return sum(peaks_mib) * (1 << 20) <= MOST_MEMORY * allowed_memory()


@dataclass
class _Side:
    """One of the two, from its start to its exit code; `code` is None where its time-out ended it."""

    spec: RunSpec
    folder: Path
    run: Running
    seat: Seat
    begin: float
    over: bool = False
    code: int | None = None

    def look(self) -> None:
        """Passes on what it says, and notes its end, or ends it where it ran past its time."""
        if self.over:
            return
        if self.run.process.poll() is None:
            self.run.look()
            if time.monotonic() - self.begin - self.seat.waiting_s() <= self.spec.timeout_s:
                return
            ask_where(self.run.process.pid)
            end_tree(self.run.process.pid)
        else:
            self.code = self.run.process.returncode
        self.run.finish()
        self.seat.leave()
        self.over = True

    @property
    def took_turns(self) -> bool:
        """Whether it trained in its turns and nowhere else."""
        return self.seat.prepares and self.seat.takes_turns and not self.seat.works_aside


def launch_by_turns(first: Job, second: Job, hooks: Hooks) -> tuple[RunRecord, RunRecord]:
    """Runs two specs of one rank on the CPU at the same time, an epoch of one and then of the other.

    Where both held to their turns, each record's `beside` names the other one's variant; else the two are of
    processes that disturbed each other, and their times are not to be believed.

    Args:
        first: spec and folder of what prepares first.
        second: of the other one, whose output and progress the hooks hear.
        hooks: who listens.
    """
    all_words = [worker_words(*job) for job in (first, second)]
    with run_locks(second[0], hooks.say) as locks, scratch("turns") as room, Turns(room, 2) as turns:
        cautions = others_on(second[0].device, len(locks))
        with contextlib.ExitStack() as stack:
            sides = []
            for place, (job, words) in enumerate(zip((first, second), all_words, strict=True)):
                heard = hooks if place else Hooks(say=hooks.say)
                run = stack.enter_context(running(words, job[1], heard, locks, {TURNS: str(turns.paths[place])}))
                seat = turns.seats[place]
                seat.cpu_s = partial(tree_cpu_s, run.process.pid)
                sides.append(_Side(*job, run, seat, time.monotonic()))
            while not all(side.over for side in sides):
                for side in sides:
                    side.look()
                turns.look(_LOOK_EVERY_S)
    records = [with_cautions(record_of(s.spec, s.folder, s.code), cautions) for s in sides]
    if all(side.took_turns for side in sides) and all(record.status == "done" for record in records):
        records = [
            r.model_copy(update={"beside": other.spec.variant}) for r, other in zip(records, sides[::-1], strict=True)
        ]
    for side, record in zip(sides, records, strict=True):
        write_record(side.folder / RECORD, record)
    return records[0], records[1]
