"""`laptime.host.starts`: a fork of the server is what a fresh interpreter would be, but for the time that it takes."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest

from laptime.host import starts
from laptime.host.processes import end_tree
from laptime.host.starts import Forked, start_piped, warm_starts
from laptime.tracking.patience import set_switches

linux = pytest.mark.skipif(sys.platform != "linux", reason="forks are taken for fresh processes on Linux alone")

# What a process sees of itself. Its imports are those of any child with torch.
LOOKS = """
import gc, json, multiprocessing, os, random, signal, sys, threading, warnings
from pathlib import Path
from laptime.host.child import bring_torch
bring_torch()  # as for those that laptime starts so
import numpy, torch, torchvision
import beside
print(json.dumps({
    "words": sys.argv[1:], "name": __name__, "spec": __spec__.name, "beside": beside.__file__,
    "main": sys.modules["__main__"].__dict__ is globals(), "path": [p for p in sys.path if p != sys.argv[0]],
    "environment": {n: v for n, v in os.environ.items() if n != "PYTEST_CURRENT_TEST"}, "folder": os.getcwd(),
    "handlers": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)],
    "open": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1], "stdin": os.readlink("/proc/self/fd/0"),
    "cores": sorted(os.sched_getaffinity(0)), "group": os.getpgrp(), "threads": threading.active_count(),
    "torch": [torch.get_num_threads(), torch.is_grad_enabled(), torch.cuda.is_initialized()],
    "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0], "filters": str(warnings.filters),
    "process": [multiprocessing.current_process().name, multiprocessing.parent_process() is None],
    "shown": [w for w in Path("/proc/self/cmdline").read_text().split(chr(0)) if w],
    "executed": "laptime.worker" in sys.modules,
}))
print(json.dumps([random.random(), float(numpy.random.rand()), torch.rand(()).item()]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with a module to run, and one beside it."""
    folder = tmp_path_factory.mktemp("starts")
    (folder / "looks.py").write_text(LOOKS)
    (folder / "beside.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def server(folder):
    with warm_starts():
        yield starts._server


@pytest.fixture
def forks(server, monkeypatch):
    """Any module is started as a fork; elsewhere the server of these tests is not known."""
    monkeypatch.setattr(starts, "_with_torch", lambda words: True)
    monkeypatch.setattr(starts, "_server", server)
    return server


@pytest.fixture(autouse=True)
def unknown(monkeypatch):
    """None is there, but where a test says so."""
    monkeypatch.setattr(starts, "_server", None)


def ended(*words, variables=None) -> tuple[int, str, str]:
    """Exit code, output and errors of a module that has run to its end."""
    with Path("errors.txt").open("w+b") as errors:
        process, output = start_piped(words, variables or {}, errors=errors.fileno())
        with output:
            said = output.read().decode()
        code = process.wait(60)
        errors.seek(0)
        return code, said, errors.read().decode()


@contextlib.contextmanager
def running(code: str, held=()):
    """A module on its way, which has said a line."""
    Path("waits.py").write_text(code)
    process, output = start_piped(["waits"], held=held)
    with output:
        output.readline()
        try:
            yield process
        finally:
            end_tree(process.pid)
            process.wait()


def gone(pid: int) -> bool:
    until = time.monotonic() + 60
    while psutil.pid_exists(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


@linux
def test_a_fork_sees_what_a_fresh_interpreter_sees(folder, monkeypatch):
    monkeypatch.setenv("LAPTIME_SAID", "to both")
    fresh = ended("looks", "a", "--b c", variables={"LAPTIME_ALONE": "1"})
    monkeypatch.setattr(starts, "_with_torch", lambda words: True)
    with warm_starts():
        monkeypatch.setenv("LAPTIME_SAID", "to both, and later than the server began")
        first = ended("looks", "before")
        monkeypatch.setenv("LAPTIME_SAID", "to both")
        forked = ended("looks", "a", "--b c", variables={"LAPTIME_ALONE": "1"})
    assert (fresh[0], first[0], forked[0]) == (0, 0, 0), (fresh, first, forked)
    assert json.loads(forked[1]) == json.loads(fresh[1])
    seen = json.loads(forked[1])
    assert (seen["words"], seen["name"], seen["environment"]["LAPTIME_ALONE"]) == (["a", "--b c"], "__main__", "1")
    assert seen["shown"][-4:] == ["laptime.host.child", "looks", "a", "--b c"]
    assert "LAPTIME_ALONE" not in json.loads(first[1])["environment"]
    assert all(one != other for one, other in zip(*(json.loads(each[2]) for each in (first, forked)), strict=True))


@linux
def test_a_fork_holds_as_much_memory_as_a_fresh_interpreter(folder, forks, monkeypatch):
    """The peak of a training is what a user's machine has to have, however it was started."""
    (folder / "holds.py").write_text(
        "import importlib\nimportlib.import_module('laptime.worker')\n"
        "import psutil\nprint(psutil.Process().memory_info().rss)"
    )
    forked = int(ended("holds")[1])
    monkeypatch.setattr(starts, "_server", None)
    assert forked == pytest.approx(int(ended("holds")[1]), rel=0.05)


@linux
def test_a_fork_of_a_command_in_the_background_hears_no_ctrl_c_either(folder):
    """As a shell without job control starts it, with the signal ignored."""
    code = (
        "from laptime.host import starts\nstarts._with_torch = lambda words: True\nwith starts.warm_starts():\n"
        "    process, output = starts.start_piped(['hears'])\n    print(output.read().decode(), process.wait())"
    )
    (folder / "hears.py").write_text("import signal\nprint(signal.getsignal(signal.SIGINT).name, end='')")
    (folder / "asks_behind.py").write_text(code)
    shell = f"trap '' INT; exec {sys.executable} asks_behind.py"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("SIG_IGN 0\n", 0), done.stderr


@linux
def test_a_fork_s_end_is_told_as_it_was(folder, forks):
    for code, text in (
        (0, ""),
        (3, "raise SystemExit(3)"),
        (1, "raise ValueError('why')"),
        (7, "import os; os._exit(7)"),
    ):
        (folder / f"ends{code}.py").write_text(text)
        assert ended(f"ends{code}")[0] == code
    assert "ValueError: why" in ended("ends1")[2]
    with running("import time\nprint(flush=True)\ntime.sleep(60)") as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        os.kill(process.pid, signal.SIGKILL)
        assert (process.wait(60), process.poll(), process.returncode) == (-9, -9, -9)


@linux
def test_a_fork_alone_holds_what_it_was_given(folder, forks):
    """A device's lock, which must be free once the training is over, whoever it was forked by."""
    with (folder / "lock").open("w") as lock, (folder / "lock").open() as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with running("import sys\nprint(flush=True)\nimport time\ntime.sleep(60)", (lock.fileno(),)) as process:
            lock.close()
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(60) == -signal.SIGTERM
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@linux
def test_what_imports_read_begins_the_server_anew(folder, forks, monkeypatch):
    (folder / "threads.py").write_text("import torch; print(torch.get_num_threads())")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert ended("threads")[1] == "1\n"
    first = forks._process.pid
    assert ended("threads")[1] == "1\n"
    assert forks._process.pid == first
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert ended("threads")[1] == "2\n"
    assert gone(first)


@linux
def test_what_mlflow_alone_reads_begins_none_anew(folder, forks):
    """A ladder sets it once it reaches for the store, behind its first starts."""
    (folder / "after.py").write_text("import os; print(os.environ.get('DO_NOT_TRACK'))")
    with patch.dict(os.environ):
        os.environ.pop("DO_NOT_TRACK", None)
        assert ended("after")[1] == "None\n"
        first = forks._process.pid
        set_switches()
        assert ended("after")[1] == "true\n"
        assert forks._process.pid == first


@linux
def test_names_that_are_no_utf_8_are_handed_on(folder, forks):
    (folder / "words.py").write_text("import sys; print(ascii(sys.argv[1:]))")
    assert ended("words", "tmp\udcff")[:2] == (0, "['tmp\\udcff']\n")


@linux
def test_a_server_that_somebody_ends_takes_its_forks_with_it_and_the_next_starts_all_the_same(folder, forks):
    with running("import time\nprint(flush=True)\ntime.sleep(60)") as process:
        os.kill(forks._process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGTERM
        assert gone(process.pid)
    (folder / "after.py").write_text("print('here')")
    assert ended("after")[:2] == (0, "here\n")
    with running("print(flush=True)") as process:
        assert isinstance(process, Forked)


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_forks_and_their_server_end_with_who_asked_for_them(folder, number):
    (folder / "asks.py").write_text(
        "from laptime.host import starts\nstarts._with_torch = lambda words: True\nimport time\n"
        "with starts.warm_starts():\n    process, output = starts.start_piped(['waits'])\n    output.readline()\n"
        "    print(process.pid, starts._server._process.pid, flush=True)\n    time.sleep(60)\n"
    )
    (folder / "waits.py").write_text("import time\nprint(flush=True)\ntime.sleep(60)")
    with subprocess.Popen([sys.executable, "asks.py"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asks:
        pids = [int(word) for word in asks.stdout.readline().split()]
        os.kill(asks.pid, number)
        assert all(gone(pid) for pid in pids)
    assert asks.returncode == -number


@linux
def test_the_server_goes_with_the_end_of_warm_starts(folder, monkeypatch):
    monkeypatch.setattr(starts, "_with_torch", lambda words: True)
    (folder / "after.py").write_text("")
    with warm_starts():
        assert starts._server._process is None, "none is begun that nobody needs"
        ended("after")
        pid = starts._server._process.pid
        with warm_starts():
            ended("after")
        assert starts._server._process.pid == pid, "one is enough"
    assert starts._server is None
    assert gone(pid)


@pytest.mark.parametrize("where", ["outside", "other module", "gpu", "no pidfd"])
def test_elsewhere_a_fresh_interpreter_starts(folder, monkeypatch, where):
    """Among them wherever a driver shows GPUs: what it makes of forks has not been seen."""

    def refuse(pid):
        raise OSError("not implemented")

    if where == "gpu":
        monkeypatch.setattr(starts, "_DRIVERS", (folder / "looks.py",))
    if where == "no pidfd":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setattr(starts, "_with_torch", lambda words: where != "other module")
    (folder / "after.py").write_text("print('here')")
    with contextlib.nullcontext() if where == "outside" else warm_starts():
        process, output = start_piped(["after"])
        assert isinstance(process, subprocess.Popen)
        with output:
            assert output.read() == b"here\n"
        assert process.wait() == 0


@linux
def test_a_server_that_can_t_begin_costs_nothing_but_time(folder, forks, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    (folder / "torchvision.py").write_text("raise ImportError('broken')")
    (folder / "after.py").write_text("print('here')")
    assert ended("after")[:2] == (0, "here\n")


def test_each_module_with_torch_is_served():
    assert starts._with_torch(["laptime.worker"])
    assert not starts._with_torch(["laptime.data"])
