"""LAPTIME_HOME wherever people put it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
from data_samples import MakeFolder, left_over, stores

from laptime.data.fetch import fetch, verify
from laptime.errors import DataError, LaptimeError
from laptime.places import find_places
from laptime.tracking.journal import Journal


@pytest.mark.parametrize("name", ["with blanks in it", "données_数据", "a'b\"c", "-rf", "a%20b#c?d", "x" * 200])
def test_a_home_of_any_name(
    make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / name))
    home = find_places().home
    assert home == tmp_path / name
    data = fetch("cifar", str(make_folder()), home)
    assert verify("cifar", str(tmp_path / "images"), home) == data
    assert Path(data.path).parent == home / "data"
    Journal(find_places().journal / "a.jsonl").close()


def test_a_home_that_is_a_file(make_folder: MakeFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="set LAPTIME_HOME to one that can"):
        fetch("cifar", str(make_folder()), tmp_path / "file")
    with pytest.raises(LaptimeError, match="can't be written"):
        Journal(tmp_path / "file" / "a.jsonl")


@pytest.mark.skipif(os.geteuid() == 0 and not which("setpriv"), reason="root may write anywhere")
def test_a_home_that_is_read_only_is_said_before_anything_is_computed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    less = "-dac_override,-dac_read_search"
    as_others = ["setpriv", "--bounding-set", less, "--inh-caps", less] if os.geteuid() == 0 else []
    laptime = [sys.executable, "-m", "laptime"]
    environment = os.environ | {"LAPTIME_HOME": str(home / "deeper")}
    new = subprocess.run([*laptime, "new", str(tmp_path / "mine.py")], env=environment, capture_output=True, check=True)
    assert new.stderr == b""
    for words in (["doctor"], ["optimize", f"{tmp_path}/mine.py:workload"]):
        done = subprocess.run(
            [*as_others, *laptime, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stderr == f"laptime: {str(home)!r} may not be written to: set LAPTIME_HOME to a folder that may.\n"
        assert done.returncode == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_is_read_only(make_folder: MakeFolder, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    with pytest.raises(DataError, match="set LAPTIME_HOME to one that can"):
        fetch("cifar", str(make_folder()), home)
    assert stores(home) == left_over(home) == []
