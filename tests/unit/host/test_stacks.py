"""Where processes stand: whoever asks has the answer, also where a busy machine gives it late."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from laptime.host import stacks
from laptime.host.stacks import ask_where

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells whether a signal waits")


@contextlib.contextmanager
def waiting(before: str, log):
    """A process of ours, the words of which go to a file."""
    code = f"import signal, time\nfrom laptime.host.stacks import tell_crashes\ntell_crashes()\n{before}\n"
    code += "print(flush=True)\ntime.sleep(300)"
    with log.open("wb") as errors:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=errors)
    with process:
        try:
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_the_answer_of_a_process_without_a_turn_is_waited_for(tmp_path, monkeypatch):
    """One that is stopped for a while is as one that others leave no core."""
    monkeypatch.setattr(stacks, "_PATIENCE_S", 120.0)
    with waiting("", tmp_path / "log") as process:
        process.send_signal(signal.SIGSTOP)
        on = threading.Timer(1.0, process.send_signal, [signal.SIGCONT])
        on.start()
        ask_where(process.pid)
        said = (tmp_path / "log").read_text()
        on.join()
    assert "most recent call first" in said


def test_one_that_stays_stopped_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "_PATIENCE_S", 0.2)
    with waiting("", tmp_path / "log") as process:
        process.send_signal(signal.SIGSTOP)
        ask_where(process.pid)
        assert (tmp_path / "log").read_text() == ""


def test_one_that_holds_the_signal_back_is_not_waited_for(tmp_path, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(stacks, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    with waiting("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])", tmp_path / "log") as process:
        ask_where(process.pid)
    assert slept == [stacks._ANSWER_S]


def test_nobody_is_ended_by_the_question(tmp_path):
    with waiting("signal.signal(signal.SIGUSR2, signal.SIG_DFL)", tmp_path / "log") as process:
        ask_where(process.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
