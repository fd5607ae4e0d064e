"""Processes that end when they should: with their parent, and with all their children."""

from __future__ import annotations

import contextlib
import ctypes
import math
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NoReturn

from laptime.host.output import flush

# The folder that laptime is imported from.
_OURS = Path(__file__).parents[2]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
PARENT = "LAPTIME_PARENT"
_LOOK_EVERY_S = 0.05
# What a process is told of its rank, as torch.distributed reads it; what begins with TORCHELASTIC_ belongs to it.
_RANK = frozenset(f"{of}{what}" for of in ("", "LOCAL_", "GROUP_", "ROLE_") for what in ("RANK", "WORLD_SIZE")) | {
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
}

# What the ranks of a run and their launcher agree on: which rank died, and the exit code of one that only lost another.
RANKS_FILE = "ranks.json"
PEER_LOST = 75
# The exit code of a launcher of ranks that can't meet those of the other machines (any more).
ENDPOINT_LOST = 76


class Terminated(SystemExit):
    """A process was asked to end (SIGTERM), which what a user's own code raises to leave is not."""


def child_command(module: str, *arguments: str) -> list[str]:
    """The command of a module of ours that ends with this process, even during imports; for `child_environment`."""
    return [sys.executable, *plain_path(), "-m", "laptime.host.child", module, *arguments]


def plain_path() -> list[str]:
    """Python's option that keeps the working directory off a module's path; empty where laptime itself lies there.

    Under `python -m` it stands first: a user's `queue.py` or `laptime.py` there would be imported by torch, or as us.
    """
    with contextlib.suppress(OSError):  # it is gone
        if Path.cwd() == _OURS:
            return []
    return ["-P"]


def kept_command(*words: str) -> list[str]:
    """A command of anybody's below a keeper, so that its whole tree ends with this process; for `child_environment`.

    The keeper is this laptime's, whichever one stands in the command's folder or on its PYTHONPATH, and what it imports
    may be installed for this user alone.
    """
    import psutil

    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); sys.path.append(sys.argv.pop(1)); "
        "import laptime.host.keeper as k; sys.exit(k.main(sys.argv[1:]))"
    )
    others = Path(psutil.__file__).parents[1]
    return [sys.executable, "-I", "-c", code, str(_OURS), str(others), *words]


def child_environment(ours: bool = True) -> dict[str, str]:
    """The environment for a child that calls `die_with_parent`, as `child_command` has it do.

    Args:
        ours: without what a launcher of ranks (torchrun, accelerate, a batch system's script) has told this process: a
            child of ours is no rank of that training, and would wait for the others. Launchers of ours tell theirs. A
            user's own command gets what it would get without us.
    """
    told = {name: value for name, value in os.environ.items() if not (ours and _tells_a_rank(name))}
    return told | {PARENT: str(os.getpid())}


@contextlib.contextmanager
def apart_from_ranks() -> Iterator[None]:
    """Takes the same out of this process's own environment, for what runs within it."""
    told = {name: os.environ.pop(name) for name in list(os.environ) if _tells_a_rank(name)}
    try:
        yield
    finally:
        os.environ.update(told)


def _tells_a_rank(name: str) -> bool:
    return name in _RANK or name.startswith("TORCHELASTIC_")


def die_with_parent() -> None:
    """Asks the kernel to send this process SIGTERM when its parent dies, however it dies (Linux; elsewhere nothing).

    A parent that died before the call is noticed where it left its process id in the environment (`child_environment`).
    It holds for the thread that started the child, so start children from the main thread.
    """
    parent = int(os.environ.pop(PARENT, os.getppid()))
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def outlive_parent_thread() -> None:
    """Takes `die_with_parent` back: the thread that started this process may end long before its parent does."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Makes this process the parent of what loses its own below it, for it to reap (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Lets what is put away in seconds be put away: people press Ctrl-C again when nothing happens for a moment.

    Where this process is on its way out already, another Ctrl-C or SIGTERM is passed over; else it comes afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return
    leaving = isinstance(sys.exc_info()[1], KeyboardInterrupt | SystemExit)
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that Python did not set
                signal.signal(number, handler)
    if came and not leaving:
        signal.raise_signal(came[0])


def rank_log(folder: Path, rank: int | Literal["*"]) -> Path:
    """Where a rank's output goes; `*` for a pattern of all."""
    return folder / f"log-rank-{rank}.txt"


def use_own_log(folder: Path) -> None:
    """Sends what a rank says, down to messages of C++, to a file of its own; the first speaks for all."""
    rank = int(os.environ["RANK"])
    if rank == 0:
        return
    log = os.open(rank_log(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


def hear_no_children() -> None:
    """From here on the end of a loader worker raises nothing: torch's handler does so in the middle of anything."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def leave(code: int) -> NoReturn:
    """Ends the process without the interpreter's teardown: with torch loaded that takes 0.9 s.

    Everything is written and closed by now; loader workers, which that teardown would end, are ended here.
    """
    hear_no_children()
    for child in multiprocessing.active_children():
        child.terminate()
    # What that teardown would remove, too: the folder of sockets over which tensors go to another process.
    sockets = getattr(multiprocessing.current_process(), "_config", {}).get("tempdir")
    if sockets:
        shutil.rmtree(sockets, ignore_errors=True)
    end_their_runs()
    flush()
    os._exit(code)


def end_their_runs() -> None:
    """Ends the runs of MLflow that a user's own file has begun and left open, as the interpreter's teardown would."""
    fluent = sys.modules.get("mlflow.tracking.fluent")
    # Its own patience with a server that is away is minutes, in which this process would look as if it trained.
    os.environ.update({"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"})
    with contextlib.suppress(Exception):
        while fluent is not None and fluent.active_run() is not None:
            fluent.end_run()


def death(code: int) -> str:
    """How a process ended, as the end of a sentence about it."""
    if code == -signal.SIGKILL:
        return "was killed (signal 9), which the system does when memory runs out"
    return f"died of signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return "no name"


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and all below it, of those that have ended and been waited for as well."""
    import psutil

    spent = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                spent += sum(process.cpu_times()[:4])
    return spent


def end_tree(pid: int, grace_s: float = 3.0) -> None:
    """Ends a process and all below it: SIGTERM, a wait, then SIGKILL for the snapshot taken before.

    The snapshot comes first, since children of a dead process are re-parented and no longer found.
    """
    try:
        import psutil
    except ImportError:  # a machine with torch alone, as scripts/bench gpu may have
        _end_one(pid, grace_s)
        return
    try:
        root = psutil.Process(pid)
        tree = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 1.0)):
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        _, tree = psutil.wait_procs(tree, timeout=patience_s)


def _end_one(pid: int, grace_s: float) -> None:
    """Ends a child of ours without a look at what is below it, which asks the kernel to end with its parent."""
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 1.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            # Looked at, not reaped: whoever started it reads its exit code.
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                return
            time.sleep(_LOOK_EVERY_S)


def allowed_cores() -> int:
    """Cores that this process may use, by affinity and by the container's CPU quota (cgroup v2 and v1)."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(affinity, math.floor(quota))) if quota else affinity


def _cgroup_quota() -> float | None:
    """The quota in cores, None without one."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        folder = Path("/sys/fs/cgroup/cpu")
        try:
            limit = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return None
    if limit == "max" or int(limit) <= 0:
        return None
    return int(limit) / int(period)
