"""Runs training processes of the two sides: alone on their device, watched, and ended in every case."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from laptime.devices import lock_name
from laptime.gate.process import Trained, cut_down, death, tail
from laptime.gate.records import Side
from laptime.gate.request import NO_DEVICE
from laptime.gate.sides import Ready, SideError
from laptime.gate.validity import Watch
from laptime.host.processes import end_tree, kept_command, tree_cpu_s
from laptime.host.turns import TURNS
from laptime.launchers.lock import HELD, device_lock
from laptime.launchers.turns import Seat, Turns, TurnsError

_LOOK_EVERY_S = 0.1
_SAMPLE_EVERY_S = 1.0


@dataclass
class _Run:
    """A process of a side, from its command to its exit code."""

    ready: Ready
    seed: int
    folder: Path
    seat: Seat | None = None
    process: subprocess.Popen[bytes] | None = None
    begin: float = 0.0
    clock: float = 0.0
    wall_s: float = 0.0
    code: int | None = None

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        return self.folder / "gate-log.txt"

    @property
    def waits(self) -> bool:
        """Whether it does nothing but wait for its turn."""
        return self.seat is not None and self.seat.state == "waiting"

    def start(self, variables: dict[str, str], held: int | None) -> None:
        """Starts it, with the device's lock where that is held for it; raises SideError where it can't be started."""
        if held is not None:
            variables = variables | {HELD: str(held)}
        self.begin, self.clock = time.time(), time.monotonic()
        command = [_filled(word, self.seed, self.record, self.folder) for word in self.ready.command]
        environment = self.ready.environ(self.record, self.seed) | variables
        _require_program(self.ready, command[0], environment)
        locks = () if held is None else (held,)
        with self.log.open("wb") as output, _told(self.ready, command[0]):
            self.process = subprocess.Popen(
                kept_command(*command),
                cwd=self.ready.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=locks,
            )
        if self.seat:
            self.seat.cpu_s = partial(tree_cpu_s, self.process.pid)

    def ended(self) -> bool:
        """Whether it has ended; notes how long it took, less what it waited for its turns."""
        if self.process is None or self.code is not None:
            return self.code is not None
        self.code = self.process.poll()
        if self.code is None:
            return False
        self.wall_s = self.own_s()
        if self.seat:
            self.seat.leave()
        return True

    def own_s(self) -> float:
        """Seconds since its start, less those in which it waited for its turns."""
        return time.monotonic() - self.clock - (self.seat.waiting_s() if self.seat else 0.0)

    def end(self) -> None:
        """Ends its whole tree where it has not ended by itself."""
        if self.process is not None:
            if self.process.poll() is None:
                end_tree(self.process.pid)
            self.process.wait()


class Trainer:
    """Runs processes of either side.

    Args:
        room: a folder for records and logs, one below for each process.
        device: whose lock is held, `cpu` or `cuda`; NO_DEVICE for none.
        timeout_s: after which a process is ended, waiting for its turns apart.
        say: told when another timed run holds the device.
    """

    def __init__(self, room: Path, device: str, timeout_s: float, say: Callable[[str], None]) -> None:
        self.room, self.device, self.timeout_s, self.say = room, device, timeout_s, say
        # Sides whose processes have asked for a turn to prepare in, so that two of them may import at the same time.
        self._prepares: set[Side] = set()

    def train(self, ready: Ready, seed: int) -> Trained:
        """Trains one side to its record.

        Raises:
            SideError: it crashed, ran past its time, or left no record with kept epochs.
        """
        (found,) = self._train((ready,), seed)
        return found

    def train_by_turns(self, first: Ready, second: Ready, seed: int) -> tuple[Trained, Trained]:
        """Trains both sides at the same time, one epoch of one and then of the other; the flags are of both.

        Args:
            first: its epochs begin once the other one has come as far.
            second: the other one.
            seed: of both.

        Raises:
            SideError: as of `train`; the other one is ended.
            TurnsError: both may be sound, and yet these two can't take turns.
        """
        one, other = self._train((first, second), seed)
        return one, other

    def _train(self, sides: Sequence[Ready], seed: int) -> list[Trained]:
        runs = [_Run(ready, seed, self._emptied(ready.side)) for ready in sides]
        with self._alone(sides) as held, self._seated(runs) as turns:
            watch, begin = Watch(self.device), time.monotonic()
            with contextlib.ExitStack() as ends:
                for run in runs:
                    ends.callback(run.end)
                self._supervise(runs, turns, watch, held)
            flags, together_s = watch.flags(), time.monotonic() - begin
        found = []
        for run in runs:
            if run.seat is not None and run.seat.prepares:
                self._prepares.add(run.ready.side)
            cut = cut_down(run.ready.side, seed, run.record, (run.wall_s, run.begin, run.log))
            seen = {
                "flags": flags,
                "by_turns": run.seat is not None and run.seat.takes_turns,
                "memory_mib": cut.process.peak_memory_mib or _largest_mib(),
                "together_s": together_s,
            }
            found.append(cut.model_copy(update=seen))
        if len(runs) > 1:
            _check_turns(runs)
        return found

    def _emptied(self, side: Side) -> Path:
        folder = self.room / side
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    @contextlib.contextmanager
    def _alone(self, sides: Sequence[Ready]) -> Iterator[int | None]:
        """Holds the device; a single `laptime run` takes its lock itself, so there the gate only waits for it."""
        if self.device == NO_DEVICE:
            yield None
            return
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(device_lock(lock_name(self.device), self.say))
            if len(sides) == 1 and "laptime" in sides[0].command[1:3]:
                stack.close()
                yield None
            else:
                yield lock

    @contextlib.contextmanager
    def _seated(self, runs: Sequence[_Run]) -> Iterator[Turns | None]:
        """Offers turns on a CPU: a GPU has little of a machine's drift, and no memory to spare for two trainings."""
        if self.device != "cpu":
            yield None
            return
        with contextlib.ExitStack() as stack:
            turns = None
            with contextlib.suppress(OSError):  # the folder's path is too long for a socket's: no turns then
                turns = stack.enter_context(Turns(self.room, len(runs)))
                for run, seat in zip(runs, turns.seats, strict=True):
                    run.seat = seat
            yield turns

    def _supervise(self, runs: Sequence[_Run], turns: Turns | None, watch: Watch, held: int | None) -> None:
        """Runs processes to their ends."""
        begin, sample = time.monotonic(), 0.0
        while True:
            ended = [run.ended() for run in runs]
            failed = next((run for run in runs if run.code), None)
            late = (run for run in runs if run.process and run.code is None and run.own_s() > self.timeout_s)
            failed = failed or next(late, None)
            if failed is not None:
                raise self._died(failed)
            if all(ended):
                return
            if time.monotonic() - begin > (len(runs) + 1) * self.timeout_s:
                raise TurnsError("both waited for a turn until their time was over")
            if time.monotonic() >= sample:
                watch.sample()
                sample = time.monotonic() + _SAMPLE_EVERY_S
            self._start_next(runs, turns, held)
            if turns:
                turns.look(_LOOK_EVERY_S)
            else:
                _wait(runs)

    def _start_next(self, runs: Sequence[_Run], turns: Turns | None, held: int | None) -> None:
        """Starts those that may: at once where all will ask before they prepare, else when the one before waits."""
        at_once = turns is not None and self._prepares.issuperset(run.ready.side for run in runs)
        for number, run in enumerate(runs):
            if run.process is None and (at_once or all(r.waits or r.code == 0 for r in runs[:number])):
                run.start({TURNS: str(turns.paths[number])} if turns else {}, held)

    def _died(self, run: _Run) -> SideError:
        log, info = tail(run.log), run.ready.info
        reason = death(run.ready.side, run.code, self.timeout_s, (run.record, log, bool(info.ref) and not info.dirty))
        return SideError(run.ready.side, reason, log)


def _check_turns(runs: Sequence[_Run]) -> None:
    for run in runs:
        side, seat = run.ready.side, run.seat
        if seat is None or not seat.takes_turns:
            raise TurnsError(f"{side} took no turns")
        if seat.works_aside:
            raise TurnsError(
                f"{side} worked for {seat.worked_s:.1f} s of CPU time in the {seat.beside_s:.1f} s in which the other "
                "side had the turn"
            )


def _largest_mib() -> float:
    """Peak memory of the largest process that has ended below this one; in KiB on Linux, in bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _wait(runs: Sequence[_Run]) -> None:
    process = next((r.process for r in runs if r.process and r.process.returncode is None), None)
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_EVERY_S)


def _filled(word: str, seed: int, record: Path, folder: Path) -> str:
    """Fills in the placeholders; other braces stay."""
    for name, value in (("{seed}", seed), ("{record}", record), ("{folder}", folder)):
        word = word.replace(name, str(value))
    return word


def _require_program(ready: Ready, word: str, environment: dict[str, str]) -> None:
    """Raises SideError where a command's first word leads to nothing that can be started in its folder."""
    place = str(ready.folder / word) if os.sep in word else word
    folders = [str(ready.folder / entry) for entry in environment.get("PATH", os.defpath).split(os.pathsep)]
    if shutil.which(place, path=os.pathsep.join(folders)) is None:
        raise _unstarted(
            ready, word, "there is no such program, or it is not executable; name it as PATH does, or by its whole path"
        )


@contextlib.contextmanager
def _told(ready: Ready, word: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # its folder is gone, or the arguments are too long
        raise _unstarted(ready, word, str(error.strerror)) from error


def _unstarted(ready: Ready, word: str, why: str) -> SideError:
    return SideError(ready.side, f"{ready.side}'s command {word!r} can't be started in {ready.folder}: {why}.")
