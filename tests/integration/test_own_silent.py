"""A user's file that says nothing while it is looked at is told with its line, waited for, and ended by Ctrl-C."""

import os
import signal
import subprocess
import sys
import time

import psutil
from tests.own_files import TUPLE, place, write

from laptime.ladder.data import fetch_data
from laptime.ladder.silence import Silence
from laptime.places import Places

DATA = "        return TensorDataset(X[:64]"
WAITS = "while not FREE.exists(): time.sleep(0.05)"
# A child and the process itself that pass over Ctrl-C, the child over SIGTERM, too.
STUBBORN = f"""\
import multiprocessing, signal, time
from pathlib import Path
FREE, PIDS = Path(__file__).with_suffix(".free"), Path(__file__).with_suffix(".pids")

def child():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with PIDS.open("a") as pids:
        pids.write(f"{{multiprocessing.current_process().pid}}\\n")
    {WAITS}

{TUPLE}"""
HANGS = "        signal.signal(signal.SIGINT, signal.SIG_IGN)\n        multiprocessing.Process(target=child).start()\n"


def test_a_silent_file_is_told_with_its_line_and_waited_for(tmp_path):
    file, said = tmp_path / "silent.py", []
    name = write(file, STUBBORN, (DATA, f"        {WAITS}\n{DATA}"))
    line = f"{place(file, f'        {WAITS}')}{WAITS})"

    def say(sentence):
        said.append(sentence)
        if line in sentence:
            file.with_suffix(".free").touch()

    found = fetch_data(name, "auto", Places(tmp_path / "home"), silence=Silence(say, 2.0))
    assert found.train_count == 64
    told = f"silent.py has been silent for 2 s while it is looked at {line}: it is waited for, and Ctrl-C ends it"
    # Before and after it all may be as silent on a busy machine, and is told, too.
    assert said.count(told) == 1
    assert all(sentence.startswith("silent.py has been silent for 2 s ") for sentence in said)


def test_ctrl_c_while_a_file_is_looked_at_leaves_no_process(tmp_path):
    name = write(tmp_path / "stubborn.py", STUBBORN, (DATA, f"{HANGS}        {WAITS}\n{DATA}"))
    process = subprocess.Popen(
        [sys.executable, "-m", "laptime", "data", "fetch", name],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LAPTIME_HOME": str(tmp_path / "home")},
        start_new_session=True,
    )
    pids = tmp_path / "stubborn.pids"
    until = time.monotonic() + 120
    while not (pids.exists() and pids.read_text().endswith("\n")) and time.monotonic() < until:
        time.sleep(0.1)
    orphan = psutil.Process(int(pids.read_text()))
    looker = orphan.parent()
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    _, left = psutil.wait_procs([orphan, looker], timeout=10)
    for one in left:
        one.kill()
    assert not left
