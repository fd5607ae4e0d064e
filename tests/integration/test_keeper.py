"""Below a keeper nothing outlives a server: neither what a killed server leaves, nor the server of a killed keeper."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from laptime.host.processes import kept_command

_PATIENCE_S = 60.0
_GONE_S = 10.0
# A server with a process in a session of its own, as a worker of Prefect starts its flow runs.
_SERVER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
time.sleep(600)
"""


@contextmanager
def kept(server: str = _SERVER) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process, psutil.Process]]:
    """A keeper, its server and the server's own process."""
    command = kept_command(sys.executable, "-c", server)
    with subprocess.Popen(command) as keeper:
        found: list[psutil.Process] = []
        try:
            until = time.monotonic() + _PATIENCE_S
            while len(found := psutil.Process(keeper.pid).children(recursive=True)) < 2:
                assert time.monotonic() < until
                time.sleep(0.05)
            yield keeper, found[0], found[1]
        finally:
            for process in (*found, psutil.Process(keeper.pid) if keeper.poll() is None else None):
                if process is not None and process.is_running():
                    process.kill()


def test_what_a_killed_server_leaves_is_ended() -> None:
    with kept() as (keeper, server, left):
        server.kill()
        assert keeper.wait(_GONE_S) == -signal.SIGKILL
        assert not left.is_running()


def test_a_server_ends_with_its_killed_keeper() -> None:
    with kept() as (keeper, server, _):
        keeper.kill()
        try:
            server.wait(_GONE_S)
        except psutil.TimeoutExpired:
            pytest.fail("the server outlived its keeper")


def test_what_can_not_be_started_is_told_in_one_line(tmp_path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = subprocess.run(kept_command(str(script)), capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    assert done.returncode == 126
    assert done.stderr == f"{str(script)!r} can't be started: No such file or directory\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_while_it_ends_the_tree_leaves_nothing(number) -> None:
    stubborn = "import signal\nfor number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)"
    with kept(f"{stubborn}\n{_SERVER}") as (keeper, server, left):
        keeper.send_signal(number)
        time.sleep(0.5)
        keeper.send_signal(number)
        keeper.wait(_GONE_S)
        assert not server.is_running()
        assert not left.is_running()
