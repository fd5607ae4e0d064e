"""`scripts/bench gpu` ends by a signal with a sentence, what it has measured and no process left."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tests.samples import write_folder
from tests.serving import Quiet, serving
from tests.unit.conftest import BENCHMARKS
from tests.unit.gpu_examples import ROOT, start_script

from laptime.compare.load import load

PATIENCE_S = 120
# To the whole group, as a terminal sends it, or to the parent alone, as a scheduler does.
HOW = [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM), (os.kill, signal.SIGHUP)]


def seen(process, word):
    """The children of a bench once one of them has a word in its command."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ended meanwhile
            children = psutil.Process(process.pid).children(recursive=True)
            if any(word in " ".join(child.cmdline()) for child in children):
                return children
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"no {word}")


def alive(processes):
    # Reaped by nobody where process 1 of a container does not.
    return [p for p in psutil.wait_procs(processes, 5)[1] if p.status() != psutil.STATUS_ZOMBIE]


def ended(process, word, send, number):
    """What a bench says, and its exit code, that a signal meets once a child is there; its children are gone."""
    with process:
        try:
            children = seen(process, word)
            send(process.pid, number)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert not alive(children)
    return process.returncode, out, err


@pytest.mark.parametrize(("send", "number"), HOW)
def test_while_it_probes_the_machine(tmp_path, send, number):
    options = ("--device", "cpu", "--data", "synthetic", "--out", str(tmp_path / "out"))
    code, out, err = ended(start_script(tmp_path, *options), "laptime.preflight.probe", send, number)
    assert (code, out) == (128 + number, "")
    assert err == (
        f"scripts/bench gpu: interrupted by {number.name}: what has been measured stays in {tmp_path / 'out'}, and the "
        "same command with that --out goes on from there.\n"
    )
    assert not list((tmp_path / "home").glob("probe-*"))


class Slow(Quiet):
    """An archive that arrives for ever."""

    def do_GET(self):
        self.give(b"", length=10**9)
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(bytes(1000))
                time.sleep(0.05)


@pytest.fixture
def archive():
    with serving(Slow) as address:
        yield f"{address}/images.tar.gz"


@pytest.mark.parametrize(("send", "number"), HOW[:2])
def test_while_it_fetches_data(tmp_path, archive, send, number):
    process = start_script(tmp_path, "--data", archive, "--fetch-only")
    code, _, err = ended(process, "laptime.data", send, number)
    assert code == 128 + number
    assert err == f"scripts/bench gpu: interrupted by {number.name}: the same command begins anew.\n"


@pytest.mark.long
@pytest.mark.parametrize(("send", "number"), HOW[:2])
def test_while_it_trains(tmp_path, send, number):
    images, out = write_folder(tmp_path / "images", train=16, test=4), tmp_path / "out"
    options = ("--device", "cpu", "--data", str(images), "--out", str(out), "--final-epochs", "2")
    process = start_script(tmp_path, *options, "--phases", "headline")
    code, said, err = ended(process, f"cpu-optimized{os.sep}0", send, number)
    assert code == 128 + number
    assert err.startswith(f"scripts/bench gpu: interrupted by {number.name}: ")
    assert len(err.splitlines()) == 1
    ladder, records = load(out)
    assert ladder.status == "interrupted"
    assert [(r.spec.variant, r.status) for r in records] == [("cpu-baseline", "done")]
    assert "\ncpu-baseline " in said
    assert said.rstrip().endswith(f"laptime compare {out})")


def test_a_peer_ends_with_what_started_it_however_that_ends(tmp_path):
    script = tmp_path / "sleeping.py"
    script.write_text("import time; time.sleep(99)")
    code = f"import sys, peer_runs; peer_runs.peer_epochs([sys.executable, {str(script)!r}])"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{BENCHMARKS}"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        children = seen(process, "sleeping.py")
        while any("execv" in " ".join(child.cmdline()) for child in children):  # it is about to become the peer
            time.sleep(0.02)
        process.kill()
    assert not alive(children)


def test_the_first_signal_counts_and_its_own_limit_says_so(gpu, tmp_path, capfd, monkeypatch):
    ending = importlib.import_module("gpu_ending")
    before = {number: signal.getsignal(number) for number in ending._HEARD}

    def hang(asked, begin):
        try:
            time.sleep(PATIENCE_S)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(gpu, "_benched", hang)
    monkeypatch.setattr(ending, "OVER_S", 0.1)
    try:
        code = gpu.main(["--out", str(tmp_path), "--budget-s", "0.1"])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert code == 1
    said = "scripts/bench gpu: ended, since its budget of 0.1 s was over for 0.1 s: what has been measured stays in "
    assert capfd.readouterr().err.startswith(f"{said}{tmp_path}")
