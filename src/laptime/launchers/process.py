"""Launcher `process`: the worker in a fresh process, with its log, a timeout and an end in all cases."""

from __future__ import annotations

import contextlib
import io
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

from laptime.errors import LaptimeError, shorten
from laptime.host.gpus import others_on
from laptime.host.processes import death, end_tree, undisturbed
from laptime.host.stacks import ask_where
from laptime.host.starts import Started, start_piped
from laptime.launchers.base import LOG, PROGRESS, RECORD, Hooks, ProgressReader, prepare, salvaged, with_cautions
from laptime.launchers.lock import run_locks
from laptime.launchers.sampling import sampling
from laptime.own.user_code import before_crash, crash_place, hang_place
from laptime.records import RunRecord, read_record, write_record
from laptime.spec import RunSpec

_LOOK_EVERY_S = 0.2
_DRAIN_S = 2.0
_NONE: Mapping[str, str] = MappingProxyType({})


def launch(spec: RunSpec, folder: Path, hooks: Hooks) -> RunRecord:
    """Runs a spec in a fresh process while holding the device's lock; waiting for the lock costs no time-out."""
    words = worker_words(spec, folder)
    with run_locks(spec, hooks.say) as locks:
        cautions = others_on(spec.device, len(locks))
        outcome = supervise(words, folder, hooks, locks, spec.timeout_s, spec.device)
    record = with_cautions(record_of(spec, folder, outcome), cautions)
    write_record(folder / RECORD, record)
    return record


def worker_words(spec: RunSpec, folder: Path) -> list[str]:
    """The worker's words for a spec, with the folder as a fresh process is to find it."""
    return ["laptime.worker", *prepare(spec, folder)]


def supervise(
    words: Sequence[str], folder: Path, hooks: Hooks, locks: tuple[int, ...], timeout_s: float, device: str
) -> int | None:
    """Runs a module of ours, which trains on `device`, to its end; where hooks want it samples the machine meanwhile.

    Returns:
        Its exit code, None when the time-out ended it.
    """
    until = time.monotonic() + timeout_s
    samples = sampling(folder, device) if hooks.samples else contextlib.nullcontext()
    with running(words, folder, hooks, locks) as run, samples as sampler:
        while run.process.poll() is None:
            run.look()
            if sampler is not None:
                sampler.look()
            if time.monotonic() > until:
                ask_where(run.process.pid)
                end_tree(run.process.pid)
                run.finish()
                return None
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(_LOOK_EVERY_S)
        run.finish()
        return run.process.returncode


class Running:
    """A process on its way, whose output and progress are passed on with each look."""

    def __init__(self, process: Started, output: IO[str], log: IO[str], folder: Path, hooks: Hooks) -> None:
        self.process = process
        self._log, self._hooks = log, hooks
        self._reader, self._lines = ProgressReader(folder / PROGRESS), _Reader(output)

    def look(self) -> None:
        """Passes on what it has said and done since the last look."""
        _pass_on(self._lines, self._log, self._hooks)
        for event in self._reader.events():
            self._hooks.on_event(event)

    def finish(self) -> None:
        """The last look, after its end."""
        self._lines.join(_DRAIN_S)  # a grandchild that holds the pipe must not hold the ladder
        self.look()


@contextlib.contextmanager
def running(
    words: Sequence[str], folder: Path, hooks: Hooks, locks: tuple[int, ...], variables: Mapping[str, str] = _NONE
) -> Iterator[Running]:
    """Starts a module of ours whose output goes to the folder's log, and ends its whole tree on the way out.

    Args:
        words: the module and its arguments.
        folder: its run's.
        hooks: who hears of it.
        locks: descriptors of the locks of its devices, which it holds, too.
        variables: of its environment, beside this process's.
    """
    log_file = (folder / LOG).open("w", encoding="utf-8")
    with _named(folder), log_file as log, child(words, *locks, variables=variables) as (process, output):
        yield Running(process, output, log, folder, hooks)


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Gives an error of the system a place, which that of a full disk does not have."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise


@contextlib.contextmanager
def child(
    words: Sequence[str], *descriptors: int, variables: Mapping[str, str] = _NONE
) -> Iterator[tuple[Started, IO[str]]]:
    """Starts a module of ours with its output piped, and ends its whole tree on the way out, whatever the way is.

    Whoever reads the output, which comes second, closes it.

    The child stays in this process group, so that Ctrl-C and Prefect's cancellation reach it, and asks the kernel to be
    ended with its parent.
    """
    process, output = start_piped(words, variables, descriptors)
    try:
        yield process, io.TextIOWrapper(output, encoding="utf-8", errors="replace")
    finally:
        with undisturbed():
            if process.poll() is None:
                end_tree(process.pid)
            process.wait()


class _Reader(threading.Thread):
    """Reads lines in a thread of its own: a full pipe would stop the trainer."""

    def __init__(self, source: IO[str]) -> None:
        super().__init__(daemon=True)
        self._source, self.queue = source, queue.SimpleQueue[str]()
        self.start()

    def run(self) -> None:
        with self._source:
            for line in self._source:
                self.queue.put(line)


def _pass_on(lines: _Reader, log: IO[str], hooks: Hooks) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            line = lines.queue.get_nowait()
            log.write(line)
            log.flush()
            hooks.on_line(line.rstrip("\n"))


def record_of(spec: RunSpec, folder: Path, code: int | None) -> RunRecord:
    """The record that a worker left, or one with what it had measured that says why; code None for the time-out."""
    if code is None:
        text, own = _text(folder / LOG), _own_file(spec)
        place = hang_place(text, own) if own is not None else ""
        sentence = (
            f"ran past its time-out of {spec.timeout_s:g} s and was ended{place}: raise --timeout or limit the data."
        )
        return salvaged(spec, folder, sentence)
    if code == 0 and (folder / RECORD).is_file():
        try:
            return read_record(folder / RECORD)
        except LaptimeError as error:
            return salvaged(spec, folder, str(error))
    return salvaged(spec, folder, f"the worker {how_ended(code, folder / LOG, spec)}")


def how_ended(code: int, log: Path, spec: RunSpec | None = None, then: str = "") -> str:
    """How a process ended: by which signal, with the user's line where it stood, and with what it said last.

    Args:
        code: its exit code.
        log: what it said.
        spec: what it ran; None where nobody knows.
        then: what came of it, to be said behind the place.
    """
    own, text = None if spec is None else _own_file(spec), _text(log)
    smaller = ": make the batch smaller" if code == -signal.SIGKILL else ""
    place = crash_place(text, own) if code < 0 else ""
    unasked = " without a record, as by os._exit(0)" if code == 0 else ""
    ended = f"{death(code)}{unasked}{place}{then}{smaller}"
    # An abort tells before why; what is said before another signal is of something else.
    return ended if place and code != -signal.SIGABRT else f"{ended}; its last words: {_last_line(text)}"


def _own_file(spec: RunSpec) -> Path | None:
    return None if spec.data.own is None else Path(spec.data.path)


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def _last_line(text: str) -> str:
    """The last line of a log that is not empty, without secrets."""
    lines = [line for line in before_crash(text).splitlines() if line.strip()]
    return shorten(lines[-1], 300) if lines else "none"


def run_child(
    module: str, arguments: Sequence[str], on_line: Callable[[str], None], limit_s: float | None = None
) -> int:
    """Runs a module of ours that needs torch in a fresh process; returns its exit code.

    Past `limit_s` its whole tree is ended, which shows as a negative code.
    """
    with child([module, *arguments]) as (process, output):
        past = threading.Event()

        def end() -> None:
            past.set()
            end_tree(process.pid)

        limit = threading.Timer(limit_s or 0.0, end)
        limit.daemon = True
        if limit_s is not None:
            limit.start()
        try:
            with output as lines:
                for line in lines:
                    on_line(line.rstrip("\n"))
            code = process.wait()
            # Whoever ended the tree may have read the exit code first; Popen then takes it for 0.
            return -signal.SIGTERM if past.is_set() else code
        finally:
            limit.cancel()
