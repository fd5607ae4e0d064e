"""Exit code 1 of `laptime gate` is a measured regression, and nothing else is, faults of its own code among it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import commands
from tests.e2e.gate_project import COMMAND

ROOT = Path(__file__).resolve().parents[2]
GATE = ("gate", "tiny", "--command", COMMAND, "--device", "none", "--no-track")


def broken(folder: Path, **added: str) -> Path:
    """A copy of laptime with text at the end of its files, which `__` in a name stands for the folders of."""
    copy = folder / "src" / "laptime"
    shutil.copytree(ROOT / "src" / "laptime", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in added.items():
        file = copy / f"{name.replace('__', '/')}.py"
        file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")
    return folder / "src"


def laptime(source: Path, where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    home = where.parent / "home"
    return commands.laptime(home, *arguments, folder=where, patience_s=120, PYTHONPATH=str(source))


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_code_that_can_not_be_loaded(project, tmp_path, debug):
    source = broken(tmp_path, cli__gate="\ndef gate(:\n")
    for arguments, code in ((GATE, 4), (("list",), 1)):
        done = laptime(source, project, *debug, *arguments)
        assert done.returncode == code, done.stderr
        assert "SyntaxError" in done.stderr
    assert ("Traceback" in laptime(source, project, *debug, *GATE).stderr) == bool(debug)


@pytest.mark.parametrize("where", ["gate__request", "gate__whole", "gate__history", "gate__track"])
def test_code_that_breaks_while_it_runs(project, tmp_path, where):
    source = broken(tmp_path, **{where: "\nraise RuntimeError('head broke it')\n"})
    done = laptime(source, project, *GATE)
    assert done.returncode == 4, done.stderr
    assert "laptime: RuntimeError: head broke it" in done.stderr
    assert "Traceback" not in done.stderr


def test_with_debug_the_traceback_is_shown_and_the_codes_stay(project, tmp_path):
    nothing = ("gate", "tiny", "--replay", str(project / "train.py"))
    for debug in ((), ("--debug",)):
        for arguments, code in ((nothing, 4), ((*GATE, "--budget", "soon"), 2)):
            done = laptime(ROOT / "src", project, *debug, *arguments)
            assert done.returncode == code, done.stderr
            assert ("Traceback" in done.stderr) == bool(debug)


def test_an_option_that_there_is_not_is_usage(project):
    done = laptime(ROOT / "src", project, *GATE, "--maximum", "3")
    assert (done.returncode, "--maximum" in done.stderr) == (2, True)
    assert laptime(ROOT / "src", project, "gate", "--help").returncode == 0


@pytest.mark.parametrize("fault", ["raise RuntimeError('no')", "raise SystemExit(1)"])
def test_an_open_journal_and_tracking_that_is_broken(project, tmp_path, fault):
    journal = tmp_path / "home" / "journal"
    journal.mkdir(parents=True)
    (journal / "left.jsonl").write_text("{}\n")
    done = laptime(broken(tmp_path, tracking__sync=f"\n{fault}\n"), project, *GATE)
    assert done.returncode == 4, done.stdout + done.stderr


def test_a_reader_that_is_gone_is_no_regression(project, tmp_path):
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"LAPTIME_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "laptime", *GATE, "--history"]
    done = subprocess.run(command, env=environment, cwd=project, stdout=write, stderr=write, timeout=120, check=False)
    os.close(write)
    assert done.returncode == 4
