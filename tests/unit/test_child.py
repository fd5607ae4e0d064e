"""`python -m laptime.child`: a module that ends with its parent, whenever that dies."""

import os
import signal
import subprocess

import pytest

from laptime.processes import apart_from_ranks, child_command, child_environment

SEEN = 'import sys\nprint("imported", __name__, *sys.argv[1:], flush=True)\n'


def started(tmp_path, parent: int) -> subprocess.CompletedProcess[str]:
    """A child that was told who its parent is."""
    (tmp_path / "some_module.py").write_text(SEEN)
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
