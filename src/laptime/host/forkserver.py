"""Holds torch ready: each process that is asked of it is a fork of one that has imported everything and done nothing.

    python -m laptime.host.forkserver SOCKET PARENT

A fresh interpreter takes seconds for these imports, a fork milliseconds. Nothing is computed here before a fork, so
that a child's threads, generators and devices are all its own. See `laptime.host.starts`, the side that asks; it ends with
the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laptime.host.child import WITH_TORCH, become, bring_torch
from laptime.host.processes import PARENT, die_with_parent, outlive_parent_thread

# One byte asks; what is asked stands in the first descriptor.
ASK = b"!"
MOST_DESCRIPTORS = 64
# Of Linux 5.14, in mman.h; Python's mmap has no name for it.
MADV_POPULATE_READ = 22
# These import what they are for (MLflow); the others are imported here as far as they go.
_LATER = {"laptime.predict.logged_model", "laptime.predict.images"}


@dataclass(frozen=True)
class Asked:
    """A process that was asked for.

    Attributes:
        words: the module and its arguments.
        title: its command, as a listing of processes shows it.
        environment: all variables of the process.
        affinity: the cores it may use.
        out, err: descriptors for what it says.
        status: where its process id and its exit code are told.
        held: descriptors that it holds as long as it lives.
    """

    words: list[str]
    title: list[str]
    environment: dict[str, str]
    affinity: list[int]
    out: int
    err: int
    status: int
    held: list[int]

    def close(self) -> None:
        """Leaves the descriptors to the child."""
        for descriptor in (self.out, self.err, *self.held):
            os.close(descriptor)


def serve(control: socket.socket, parent: int) -> Asked:
    """Forks whatever is asked for until the parent is gone or has hung up; returns in each child what it is to do."""
    watched = os.pidfd_open(parent)
    children: dict[int, tuple[int, int]] = {}  # by a descriptor that is readable once it has ended: its id, its status
    while True:
        ready = readable(control.fileno(), watched, *children)
        for ended in children.keys() & ready:
            _tell_end(ended, *children.pop(ended))
        hears = control.fileno() in ready
        asked = _heard(control) if hears else None
        if watched in ready or (hears and asked is None):
            os._exit(0)  # the kernel ends what is left of the children
        if asked is None:
            continue
        pid = os.fork()
        if not pid:
            control.close()
            for descriptor in (watched, asked.status, *(d for n, (_, s) in children.items() for d in (n, s))):
                os.close(descriptor)
            return asked
        asked.close()
        children[os.pidfd_open(pid)] = pid, asked.status
        _tell(asked.status, pid)


def readable(*descriptors: int, patience_s: float | None = None) -> set[int]:
    """Those of descriptors, of any number, that something can be read from or whose other side has hung up.

    Args:
        descriptors: what to look at.
        patience_s: how long to wait for the first; None for ever.
    """
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in waiting.poll(None if patience_s is None else 1000 * patience_s)}


def _heard(control: socket.socket) -> Asked | None:
    """What is asked for; None where the other side has hung up."""
    said, descriptors, _, _ = socket.recv_fds(control, len(ASK), MOST_DESCRIPTORS)
    if not said:
        return None
    request, out, err, status, *held = descriptors
    with os.fdopen(request, encoding="utf-8") as file:
        file.seek(0)
        fields: dict[str, Any] = json.load(file)
    return Asked(**fields, out=out, err=err, status=status, held=held)


def _tell_end(watched: int, pid: int, status: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(watched)
    _tell(status, code)
    os.close(status)


def _tell(status: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(status, f"{number}\n".encode())


def _settle_in(asked: Asked, server: int, before: Mapping[str, str]) -> None:
    """Makes this fork the process that was asked for; `before` is the environment that the server began with."""
    os.sched_setaffinity(0, asked.affinity)
    os.dup2(asked.out, sys.stdout.fileno())
    os.dup2(asked.err, sys.stderr.fileno())
    for descriptor in (asked.out, asked.err):
        os.close(descriptor)
    for descriptor in asked.held:
        os.set_inheritable(descriptor, True)
    _show(asked.title)
    for name in before.keys() - asked.environment.keys():
        os.environ.pop(name, None)
    # What imports have set themselves stays.
    os.environ.update(asked.environment.items() - before.items(), **{PARENT: str(server)})
    # A fresh process draws its own numbers until somebody sets a seed; Python's own generator does so after a fork.
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].default_generator.seed()


def mapped_files() -> list[tuple[int, int]]:
    """Address and length, in bytes, of what is resident here of files: libraries above all, 300 MiB with torch.

    A fork has none of it in its own tables until it is touched, and would seem to need so much less memory than a
    process that imported the same (`/proc/PID/pagemap` of proc(5); its highest bit is that of a page in memory).
    """
    import numpy as np

    page, found = mmap.PAGESIZE, []
    with Path("/proc/self/maps").open("rb") as maps, Path("/proc/self/pagemap").open("rb") as tables:
        for line in maps:
            addresses, rights, _, _, inode, *_ = line.split()
            if inode == b"0" or not rights.startswith(b"r"):
                continue
            begin, end = (int(address, 16) for address in addresses.split(b"-"))
            tables.seek(begin // page * 8)
            there = np.frombuffer(tables.read((end - begin) // page * 8), np.uint64) >> 63
            edges = np.flatnonzero(np.diff(there.astype(np.int8), prepend=0, append=0))
            found += [(begin + int(a) * page, int(b - a) * page) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return found


def _map(files: Iterable[tuple[int, int]]) -> None:
    """Has this process hold what its server holds of files; where the kernel won't, it has it later, as it needs it."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for address, length in files:
        advise(address, length, MADV_POPULATE_READ)


def _show(title: list[str]) -> None:
    """Puts a command in place of this process's own, as far as there is room: `ps` and `top` show it then."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5), counted from the state on
    text = b"".join(os.fsencode(word) + b"\0" for word in title)[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


def main(arguments: list[str]) -> None:
    """Serves; comes back in each child once it has ended."""
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who trains
    die_with_parent()  # in the seconds that imports take
    control, parent, server = socket.socket(fileno=int(arguments[0])), int(arguments[1]), os.getpid()
    before = dict(os.environ)
    bring_torch()
    for name in {f"laptime.{of}" for of in WITH_TORCH} - _LATER:
        importlib.import_module(name)
        del sys.modules[name]  # all that it needs stays: it runs as a program, which it could not do twice
    files = mapped_files()
    outlive_parent_thread()  # from here on it looks at the parent itself
    asked = serve(control, parent)
    _map(files)
    signal.signal(signal.SIGINT, on_interrupt)  # of what stands in a shell's background, none
    _settle_in(asked, server, before)
    become(asked.words)


if __name__ == "__main__":
    main(sys.argv[1:])
