"""Starts modules of ours as processes: fresh interpreters, or within `warm_starts` forks that have torch already."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Protocol

from laptime.host.child import WITH_TORCH
from laptime.host.forkserver import ASK, MADV_POPULATE_READ, MOST_DESCRIPTORS, readable
from laptime.host.processes import PARENT, child_command, child_environment, end_tree, plain_path

# How variables begin that each process reads when it needs them; a difference in any other may change what imports do.
# The last two are set where a ladder reaches for MLflow, behind its first starts.
_TOLD = (
    *("LAPTIME_", "MLFLOW_", "PREFECT_", "AWS_", "CUDA_VISIBLE_DEVICES", "PYTEST_"),
    *("DO_NOT_TRACK", "GIT_PYTHON_REFRESH"),
)
# Where a driver shows its GPUs: what it makes of forks has not been seen, so a fresh interpreter starts there.
_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
_GRACE_S = 2.0
# For the words of a fork, which a listing of processes shows in place of the server's.
_ROOM = " " * 1024
_NONE: Mapping[str, str] = MappingProxyType({})
# What a user sets stays. torch's own warnings in C++, of which each profile of memory brings one; and in which order
# sets of texts are, by which users number their classes: else variants, ranks and later runs would differ in that.
_UNLESS_SET = {"TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONHASHSEED": "0"}


class Started(Protocol):
    """A process on its way: what of `subprocess.Popen` its caller needs."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Its exit code once it has ended, that of a signal negative; None before."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; raises subprocess.TimeoutExpired."""


class Forked:
    """A process that the fork server has made and waits for."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb", buffering=0)
        self.returncode: int | None = None
        try:
            self.pid = int(self._status.readline() or 0)
            if not self.pid:
                raise ServerGoneError
        except BaseException:
            self._status.close()
            raise

    def poll(self) -> int | None:
        """See `Started`."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """See `Started`."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _look(self, patience_s: float | None) -> int | None:
        if self.returncode is None and readable(self._status.fileno(), patience_s=patience_s):
            said = self._status.readline()
            if not said:  # somebody ended the server, with which the kernel ends the process
                end_tree(self.pid)
            self.returncode = int(said) if said else -signal.SIGTERM
            self._status.close()
        return self.returncode


class ServerGoneError(Exception):
    """The fork server has ended, or could not begin."""


class ForkServer:
    """The process that forks; begun when the first is asked for, and anew where its surroundings have changed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._begun_in: object = None
        self._in_vain: object = None  # where one could not begin, and another could not either

    def start(
        self, words: Sequence[str], output: tuple[int, int], held: Sequence[int], environment: Mapping[str, str]
    ) -> Forked:
        """Forks a process; the arguments are those of `start`. Raises ServerGoneError."""
        here = _surroundings(environment)
        if here == self._in_vain:
            raise ServerGoneError
        begins = self._control is None or here != self._begun_in
        try:
            if begins:
                self.close()
                self._control, self._begun_in = self._begin(environment), here
            return Forked(self._asked(words, output, held, environment))
        except (OSError, ServerGoneError) as error:
            self._in_vain = here if begins else None
            self.close()
            raise ServerGoneError from error

    def _asked(
        self, words: Sequence[str], output: tuple[int, int], held: Sequence[int], environment: Mapping[str, str]
    ) -> int:
        """Asks for a process; returns the descriptor by which the server tells of it."""
        assert self._control is not None
        fields = {
            "words": list(words),
            "title": child_command(*words),
            "environment": dict(environment),
            "affinity": list(os.sched_getaffinity(0)),
        }
        with contextlib.ExitStack() as ours:
            request = os.memfd_create("request")
            ours.callback(os.close, request)
            answer, status = os.pipe()
            ours.callback(os.close, status)
            try:
                os.write(request, json.dumps(fields).encode())
                socket.send_fds(self._control, [ASK], [request, *output, status, *held])
            except BaseException:
                os.close(answer)
                raise
        return answer

    def _begin(self, environment: Mapping[str, str]) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            sys.executable,
            *plain_path(),
            "-m",
            "laptime.host.forkserver",
            str(its.fileno()),
            str(os.getpid()),
            _ROOM,
        ]
        with its:
            self._process = subprocess.Popen(
                command,
                env=_read_by_imports(environment) | {PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )
        return ours

    def close(self) -> None:
        """Ends it; what it has forked has ended before."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.terminate()  # in its imports it would not hear of it for seconds
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                end_tree(self._process.pid)
                self._process.wait()
        self._control = self._process = None


def _surroundings(environment: Mapping[str, str]) -> object:
    """What a process takes over from the one that it is a fork of."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - compared, not used
    except OSError:  # it is gone
        folder = ""
    return folder, _read_by_imports(environment)


def _read_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_TOLD)}


_server: ForkServer | None = None


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Has each module that needs torch start as a fork, all in the same way, for as long as this lasts (Linux, no GPU).

    A ladder starts dozens, each of which would import torch for seconds. Elsewhere nothing changes.
    """
    global _server  # noqa: PLW0603 - like the working directory one for the whole process
    if _server is not None or not _can_fork():
        yield
        return
    server = _server = ForkServer()
    try:
        yield
    finally:
        _server = None
        server.close()


def start_piped(
    words: Sequence[str], variables: Mapping[str, str] = _NONE, held: Sequence[int] = (), errors: int | None = None
) -> tuple[Started, BinaryIO]:
    """Starts one as `start` does, with a pipe from what it says, which the caller closes; `errors` may go elsewhere."""
    reading, writing = os.pipe()
    output = os.fdopen(reading, "rb")
    try:
        return start(words, (writing, writing if errors is None else errors), variables, held), output
    except BaseException:
        output.close()
        raise
    finally:
        os.close(writing)


def _with_torch(words: Sequence[str]) -> bool:
    return words[0] in WITH_TORCH


def _can_fork() -> bool:
    """Whether forks can be had, and taken for fresh processes."""
    if sys.platform != "linux" or importlib.util.find_spec("psutil") is None:
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        with mmap.mmap(-1, mmap.PAGESIZE) as some:
            some.madvise(MADV_POPULATE_READ)
    except OSError:  # an older kernel, or one that forbids it
        return False
    return not any(driver.exists() for driver in _DRIVERS)


def start(
    words: Sequence[str], output: tuple[int, int], variables: Mapping[str, str] = _NONE, held: Sequence[int] = ()
) -> Started:
    """Starts a module of ours that ends with this process.

    Args:
        words: the module and its arguments.
        output: descriptors for what it says, and for its errors.
        variables: of its environment, beside this process's.
        held: descriptors that it holds as long as it lives.
    """
    environment = _UNLESS_SET | child_environment() | {"PYTHONUNBUFFERED": "1"} | dict(variables)
    if _server is not None and _with_torch(words) and len(held) < MOST_DESCRIPTORS - len(output) - 2:
        try:
            return _server.start(words, output, held, environment)
        except ServerGoneError:
            pass
    out, err = output
    return subprocess.Popen(
        child_command(*words), stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=held, env=environment
    )
