"""`scripts/bench gpu` runs where there is nothing but torch, torchvision, numpy and pydantic."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.samples import write_folder

from laptime.compare.comparison import compare
from laptime.compare.load import load

ROOT = Path(__file__).resolve().parents[2]
NOT_THERE = (
    "boto3",
    "jinja2",
    "matplotlib",
    "mlflow",
    "prefect",
    "psutil",
    "pynvml",
    "rich",
    "scipy",
    "tensorboard",
    "typer",
)


def run_script(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Read by every interpreter that starts, children too.
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in NOT_THERE)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{blocked}")
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}",
        "LAPTIME_HOME": str(tmp_path / "home"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(ROOT / "scripts" / "benchmarks" / "gpu.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.slow
def test_a_dry_exercise_on_the_cpu_leaves_a_ladder_that_compare_reads(tmp_path):
    images, out = write_folder(tmp_path / "images", train=16, test=4), tmp_path / "out"
    options = ("--device", "cpu", "--rungs", "resident", "--epochs", "1", "--repeats", "1", "--limit-train", "40")
    done = run_script(tmp_path, "--data", str(images), "--out", str(out), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    ladder, records = load(out)
    assert ladder.status == "done"
    found = {r.spec.variant: r for r in records}
    assert {"cpu-baseline", "cpu-resident", "cpu-optimized", "peer-tutorial", "peer-expert"} <= set(found)
    assert {r.status for r in records} == {"done"}
    assert found["cpu-resident"].check.passed
    assert found["peer-expert"].kept[0].samples == 40
    assert (out / "peer-tutorial" / "0" / "record.json").is_file()
    rows = {row.variant: row for row in compare(ladder, records).rows}
    assert rows["peer-expert"].speedup > 0
    assert done.stdout.rstrip().endswith(f"laptime compare {out})")


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path):
    done = run_script(tmp_path, "--data", "synthetic", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "no CUDA device" in done.stderr
    assert not (tmp_path / "out").exists()
