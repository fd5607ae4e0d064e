"""A fork server that still imports, or can't: it ends with who asked for it, and nothing waits for it twice."""

import ctypes
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.unit.host.test_starts import gone, linux

from laptime.host.forkserver import mapped_files

# Starts a module within `warm_starts`, as often as it is told.
ASKS = """
import sys
from laptime.host import starts
starts._with_torch = lambda words: True
with starts.warm_starts():
    for _ in range(int(sys.argv[1])):
        process, output = starts.start_piped(["says"])
        with output:
            print(type(process).__name__, output.read().decode().strip(), flush=True)
        process.wait()
"""


def asks(folder: Path, torchvision: str, times: int = 1) -> subprocess.Popen[str]:
    """A command whose servers come upon this torchvision."""
    for name, text in (("asks", ASKS), ("says", "print('here')"), ("torchvision", torchvision)):
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "asks.py", str(times)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """A folder that each interpreter looks into first."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    return tmp_path


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_that_still_imports_ends_with_a_command_that_is_killed_or_stopped_twice(found, number):
    with asks(found, "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)") as command:
        told, until = found / "pid", time.monotonic() + 60
        while not (told.is_file() and told.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        server = int(told.read_text())
        assert "laptime.host.forkserver" in psutil.Process(server).cmdline()
        for _ in range(2):
            command.send_signal(number)
            time.sleep(0.2)
    assert gone(server)


@linux
def test_a_server_that_can_t_begin_is_begun_once(found):
    with asks(found, "open('tried', 'a').write('!')\nraise ImportError('broken')", times=3) as command:
        assert command.stdout.read() == "Popen here\n" * 3
    assert (found / "tried").read_text().count("!") == 1


@linux
@pytest.mark.parametrize("name", [b"no utf-8 \xff", b"a line's \r end"])
def test_files_are_found_in_memory_whatever_their_names_are(tmp_path, name):
    """Those of libraries in a folder of such a name above all."""
    path = os.fsencode(tmp_path) + b"/" + name
    with open(path, "w+b") as file:  # noqa: PTH123 - a name of bytes
        file.write(b"!" * mmap.PAGESIZE)
        file.flush()
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as held:
            assert held[0] == ord("!")  # so it is in this process's tables
            address = ctypes.addressof(ctypes.c_char.from_buffer(held))
            assert (address, mmap.PAGESIZE) in mapped_files()


@linux
def test_a_server_that_a_thread_began_outlives_the_thread(tmp_path):
    """The kernel takes a thread's end for a parent's, and flows start what they start from threads that come and go."""
    (tmp_path / "waits.py").write_text("print(flush=True)\nimport time\ntime.sleep(60)")
    (tmp_path / "asks.py").write_text(
        "import threading\nfrom laptime.host import starts\nfrom laptime.host.processes import end_tree\n"
        "starts._with_torch = lambda words: True\nbegun = []\n"
        "with starts.warm_starts():\n    def start():\n        begun.append(starts.start_piped(['waits']))\n"
        "        begun[-1][1].readline()\n"
        "    for _ in range(2):\n        thread = threading.Thread(target=start)\n"
        "        thread.start()\n        thread.join()\n"
        "    (first, _), (second, _) = begun\n    server = starts._server._process\n"
        "    print(type(second).__name__, server.poll(), second.poll())\n"
        "    for process, output in begun:\n        end_tree(process.pid)\n"
        "        process.wait()\n        output.close()\n"
    )
    done = subprocess.run([sys.executable, "asks.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Forked None None\n", 0), done.stderr


@linux
def test_a_command_with_thousands_of_open_files_hears_of_an_end(found):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("no process may open so many files here")
    text = ASKS.replace("import sys\n", "import os, sys\nheld = [os.open(os.devnull, 0) for _ in range(1100)]\n", 1)
    (found / "asks.py").write_text(text)
    (found / "says.py").write_text("print('here')")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    try:
        done = subprocess.run([sys.executable, "asks.py", "1"], cwd=found, capture_output=True, text=True, check=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (done.stdout, done.returncode) == ("Forked here\n", 0), done.stderr


@pytest.mark.parametrize("forked", [True, False])
def test_sets_of_texts_have_one_order_in_all_processes(tmp_path, monkeypatch, forked):
    """Else classes that are numbered by one are others in each variant that is no fork, and on each rank."""
    (tmp_path / "asks.py").write_text(ASKS.replace("lambda words: True", f"lambda words: {forked}"))
    (tmp_path / "says.py").write_text("print(list({str(n) for n in range(50)}))")
    (tmp_path / "torchvision.py").touch()

    def said() -> str:
        command = [sys.executable, "asks.py", "1"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    first = said()
    assert first.startswith("Forked" if forked and sys.platform == "linux" else "Popen")
    assert said() == first
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert said() != first, "the user's own goes before it"
