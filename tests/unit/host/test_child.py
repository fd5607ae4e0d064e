"""`python -m laptime.host.child`: a module that ends with its parent, whenever that dies."""

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import laptime
from laptime.host.child import WITH_TORCH
from laptime.host.processes import apart_from_ranks, child_command, child_environment, death, plain_path

SEEN = 'import sys\nprint("imported", __name__, *sys.argv[1:], flush=True)\n'


def started(tmp_path, parent: int) -> subprocess.CompletedProcess[str]:
    """A child that was told who its parent is."""
    (tmp_path / "some_module.py").write_text(SEEN)
    for name in ("signal", "laptime"):  # as a user may call a file of the project, which is not for us
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    return subprocess.run(
        child_command("some_module", "a", "--b"),
        env=child_environment() | {"LAPTIME_PARENT": str(parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_child_is_the_module_itself_with_its_arguments(tmp_path):
    done = started(tmp_path, os.getpid())
    assert (done.returncode, done.stdout) == (0, "imported __main__ a --b\n"), done.stderr


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID"])
def test_a_child_is_no_rank_of_what_started_its_parent(monkeypatch, name):
    """It would wait for the other ranks of that training; here the variables are left behind by torchrun."""
    monkeypatch.setenv(name, "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert name not in child_environment()
    assert child_environment()["OMP_NUM_THREADS"] == "2"
    with apart_from_ranks():
        assert name not in os.environ
    assert os.environ[name] == "2"


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells of a parent's death")
def test_a_child_whose_parent_is_gone_ends_before_it_imports_anything(tmp_path):
    done = started(tmp_path, os.getppid())
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr


def test_how_a_process_ended_is_said_in_words():
    assert death(-signal.SIGKILL) == "was killed (signal 9), which the system does when memory runs out"
    assert (death(-11), death(3)) == ("died of signal 11 (SIGSEGV)", "ended with exit code 3")


def test_a_process_that_leaves_at_once_takes_its_folder_of_sockets_with_it():
    script = (
        "import multiprocessing.connection, sys\nfrom laptime.host.processes import leave\n"
        "listener = multiprocessing.connection.Listener()\nprint(listener.address)\nleave(3)"
    )
    with tempfile.TemporaryDirectory() as name:  # pytest's own may be too long for a socket's address
        environment = os.environ | {"TMPDIR": name}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, name in done.stdout) == (3, True), done.stderr
        assert not list(Path(name).iterdir())


def test_each_that_has_torch_in_it_is_there():
    assert all(importlib.util.find_spec(name) for name in WITH_TORCH)


@pytest.mark.parametrize(
    ("imported", "kept"), [("json", True), ("laptime.host.child; laptime.host.child.bring_torch()", False)]
)
def test_a_command_s_end_searches_nothing_unless_that_would_be_told(imported, kept):
    """And torch itself has been imported without looking for garbage, which is looked for nowhere in it later."""
    script = (
        f"import gc, sys\nbefore = gc.get_stats()\nimport {imported}\nassert gc.isenabled()\n"
        "print('torchvision' in sys.modules, gc.get_stats()[2]['collections'] - before[2]['collections'])\n"
        "from laptime.console import leave_garbage\nfrozen = gc.get_freeze_count()\nleave_garbage()\n"
        "print(gc.get_freeze_count() > frozen, frozen > 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == [f"{not kept} 0", f"{kept} {not kept}", ""]


def test_only_where_laptime_itself_lies_is_the_working_directory_looked_in(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(laptime.__file__).parents[1])
    assert plain_path() == []
    monkeypatch.chdir(tmp_path)
    assert plain_path() == ["-P"]
