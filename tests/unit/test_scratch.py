"""Temporary folders end with their process, or at the next one's start."""

import multiprocessing.util
import subprocess
import sys
import tempfile

import pytest

from laptime.host.scratch import scratch, sockets_in_scratch, sweep_scratch


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_gone_at_the_end_and_after_an_error(tmp_path):
    def fails():
        with scratch("work") as folder:
            (folder / "a.txt").write_text("a")
            assert list(tmp_path.iterdir()) == [folder]
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_and_a_living_one_keeps_its_own(tmp_path):
    lines = ("import os, signal", "from laptime.host.scratch import scratch")
    code = "\n".join((*lines, "with scratch('x'): os.kill(os.getpid(), signal.SIGKILL)"))
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    (left,) = tmp_path.iterdir()
    with scratch("own") as folder:
        assert list(tmp_path.iterdir()) == [folder]
        sweep_scratch()
        assert folder.is_dir()
    assert not left.exists()


def test_what_is_not_ours_stays(tmp_path):
    (tmp_path / "laptime-other").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "laptime-scratch-link").symlink_to(tmp_path / "target")
    (tmp_path / "laptime-scratch-file").write_text("")
    sweep_scratch()
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("longest", [10, 1000])
def test_sockets_of_loader_workers_are_in_one_folder_that_is_swept(tmp_path, monkeypatch, longest):
    monkeypatch.setattr("laptime.host.scratch._LONGEST", longest)
    config = multiprocessing.current_process()._config
    monkeypatch.delitem(config, "tempdir", raising=False)
    with sockets_in_scratch():
        (folder,) = tmp_path.iterdir()
        assert config.get("tempdir") == (str(folder) if longest == 1000 else None)
        assert longest == 10 or multiprocessing.util.get_temp_dir() == str(folder)
    assert list(tmp_path.iterdir()) == []
    assert "tempdir" not in config
