"""scripts/setup in a checkout that was copied or renamed, and two stacks of `laptime up` on one home."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from laptime.cli.servers import only_one
from laptime.errors import UsageError
from laptime.places import Places

ROOT = Path(__file__).parents[3]


def checkout(folder: Path) -> Path:
    (folder / "scripts").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt", "scripts/setup"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def set_up(folder: Path) -> None:
    # What pip would be asked for is told and not done.
    variables = {**os.environ, "LAPTIME_PYTHON": sys.executable, "LAPTIME_PIP_ARGS": "--help"}
    subprocess.run([str(folder / "scripts/setup")], env=variables, check=True, capture_output=True, timeout=120)


def test_an_environment_is_made_anew_where_its_checkout_has_moved(tmp_path: Path) -> None:
    old = checkout(tmp_path / "old place")
    set_up(old)
    (old / ".venv/mark").touch()
    set_up(old)
    assert (old / ".venv/mark").exists()
    new = tmp_path / "new place"
    old.rename(new)
    set_up(new)
    assert not (new / ".venv/mark").exists()
    assert str(new) in (new / ".venv/bin/pip").read_text()


def test_a_second_stack_on_the_same_stores_is_refused(tmp_path: Path) -> None:
    places = Places(tmp_path / "home")
    with only_one(places):
        with (
            pytest.raises(UsageError, match=rf"process {os.getpid()}\): end it, or set LAPTIME_HOME"),
            only_one(places),
        ):
            pass
        with only_one(Places(tmp_path / "other")):
            pass
    with only_one(places):
        pass


_SCRIPTS = (
    "setup",
    "check",
    "check-deploy",
    "test-containers",
    "bench",
    "bench ladder",
    "chaos",
    "gate",
    "run",
    "test",
)


@pytest.mark.parametrize("asked", _SCRIPTS)
def test_a_script_that_is_asked_what_it_does_says_so_and_does_nothing(asked: str, tmp_path: Path) -> None:
    # In a tree of its own, where whoever set something up would leave it.
    name, *more = asked.split()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    command = [str(tmp_path / "scripts" / name), *more, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.split()) > 10
    assert "set -e" not in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["scripts", name]
