"""One timed run on a device at a time, whoever asks."""

import fcntl
import os
import subprocess
import sys
import threading
import time

import pytest

from laptime.errors import RunError
from laptime.launchers import lock
from laptime.launchers.lock import HELD, device_lock
from laptime.places import lock_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "lock_folder", lambda: tmp_path)
    return tmp_path


def test_the_second_waits_and_says_so(own_folder):
    said, waits = [], []
    with device_lock("cpu", said.append):
        held = True

        def sleep(seconds):
            waits.append(seconds)
            raise InterruptedError

        with pytest.raises(InterruptedError), device_lock("cpu", said.append, sleep):
            held = False
    assert held
    assert len(said) == 1
    assert str(os.getpid()) in said[0]
    with device_lock("cpu", said.append):
        assert len(said) == 1


def test_devices_do_not_share_a_lock():
    with device_lock("cpu", print), device_lock("gpu-0", print):
        pass


def test_a_child_that_inherits_the_lock_keeps_it():
    with device_lock("cpu", print) as descriptor:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[descriptor], text=True
        )

    def sleep(seconds):
        child.communicate("\n")

    said = []
    with device_lock("cpu", said.append, sleep):
        assert child.returncode == 0
    assert len(said) == 1


def test_a_folder_that_is_named_but_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "lock_folder", lock_folder)
    monkeypatch.setenv("LAPTIME_LOCKS", str(tmp_path / "gone"))
    with (
        pytest.raises(RunError, match=r"gone/laptime-cpu\.lock.*make the folder .*gone, or set LAPTIME_LOCKS"),
        device_lock("cpu", print),
    ):
        pass
    monkeypatch.setenv("LAPTIME_LOCKS", str(tmp_path))
    with device_lock("cpu", print):
        assert (tmp_path / "laptime-cpu.lock").is_file()


def test_no_link_is_followed(own_folder):
    (own_folder / "laptime-cpu.lock").symlink_to(own_folder / "elsewhere")
    with pytest.raises(RunError, match=r"laptime-cpu\.lock"), device_lock("cpu", print):
        pass
    assert not (own_folder / "elsewhere").exists()


def test_a_lock_that_is_handed_down_is_held_already(tmp_path, monkeypatch):
    said: list[str] = []
    with device_lock("cpu", said.append) as held:
        monkeypatch.setenv(HELD, str(held))
        with device_lock("cpu", said.append) as same:
            assert same == held
        os.fstat(held)  # it is not closed by who inherits it
    assert said == []


@pytest.mark.parametrize("named", ["other", "0", "999", "nonsense", "-1"])
def test_a_descriptor_of_anything_else_is_no_lock(named, tmp_path, monkeypatch):
    with (tmp_path / "other").open("w") as other:
        monkeypatch.setenv(HELD, str(other.fileno()) if named == "other" else named)
        with device_lock("cpu", print) as held:
            assert held != other.fileno()
            assert os.path.samestat(os.fstat(held), (tmp_path / "laptime-cpu.lock").stat())


def test_another_holders_lock_is_waited_for_whatever_was_handed_down(tmp_path, monkeypatch):
    with device_lock("cpu", print):
        mine = os.open(tmp_path / "laptime-cpu.lock", os.O_RDWR)
        monkeypatch.setenv(HELD, str(mine))
        said: list[str] = []

        def sleep(_: float) -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError), device_lock("cpu", said.append, sleep):
            pass
        os.close(mine)
    assert "in use by another timed run" in said[0]


def test_who_comes_back_at_once_stands_behind_who_waits():
    said, turns, ended = [], 0, threading.Event()

    def other():
        with device_lock("cpu", said.append):
            ended.set()

    with device_lock("cpu", print):
        waiting = threading.Thread(target=other)
        waiting.start()
        while not said:
            time.sleep(0.01)
    while not ended.is_set() and turns < 20:
        with device_lock("cpu", print):
            turns += 1
            time.sleep(0.05)
    waiting.join()
    assert turns <= 1


@pytest.mark.parametrize("stopped", [True, False])
def test_who_stands_first_and_takes_nothing_is_passed(own_folder, stopped):
    said, looks = [], []
    line = os.open(own_folder / "laptime-cpu.line", os.O_RDWR | os.O_CREAT)
    if stopped:
        fcntl.flock(line, fcntl.LOCK_EX)
    with device_lock("cpu", said.append, looks.append):
        assert bool(looks) is stopped
    os.close(line)
    assert said == []


def test_without_a_place_for_the_line_nobody_stands_in_it(own_folder):
    (own_folder / "laptime-cpu.line").mkdir()
    with device_lock("cpu", print):
        assert (own_folder / "laptime-cpu.lock").is_file()


def test_who_gave_up_waiting_holds_up_nobody():
    def give_up(_):
        raise InterruptedError

    looks = []
    with device_lock("cpu", print), pytest.raises(InterruptedError), device_lock("cpu", print, give_up):
        pass
    with device_lock("cpu", print, looks.append):
        assert looks == []
