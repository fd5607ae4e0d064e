"""What tests of `scripts/bench gpu` share."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.conftest import BENCHMARKS, BLOCKED, make_data_spec

from laptime.records import EpochRecord, Machine, ProbeRecord, RunRecord
from laptime.spec import OptimizationSpec

ROOT = Path(__file__).resolve().parents[2]
H200 = ProbeRecord(machine=Machine(gpus=("NVIDIA H200",)))


# What runs the tests may ignore them (nohup, a shell's background jobs), which a process hands on to what it starts.
HEARD = """
import signal
for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)
"""


def start_script(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts the bench in a process group of its own, as a terminal does, without what a lent machine lacks."""
    # Read by every interpreter that starts, children too.
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{BLOCKED}{HEARD}")
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}",
        "LAPTIME_HOME": str(tmp_path / "home"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def run_script(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with start_script(tmp_path, *arguments) as process:
        try:
            out, err = process.communicate(timeout=280)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def bench_of(gpu, folder, *arguments, spent=0.0, probe=H200):
    asked = gpu.parse(["--out", str(folder), *arguments])
    return gpu.Bench(asked, make_data_spec(train=100, test=10), probe, time.monotonic() - spent)


def trained(spec, epoch_s=1.0, status="done", error=None):
    """The record of a training that took so long, and chose layers if it has a choice."""
    settled = tuple(
        OptimizationSpec(name="products", options={"layers": "layer4"}) if o.name == "products" else o
        for o in spec.optimizations
    )
    epochs = [
        EpochRecord(index=i, epoch_s=epoch_s, samples=100, test_accuracy=0.7 + 0.01 * i) for i in range(spec.epochs)
    ]
    return RunRecord(status=status, error=error, spec=spec, epochs=tuple(epochs), settled=settled, warmup_s=2.0)
