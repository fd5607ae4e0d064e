"""`scripts/bench gpu` runs where there is nothing but torch, torchvision, numpy and pydantic."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.samples import write_folder
from tests.unit.conftest import BLOCKED, make_data_spec

from laptime.catalogue import STATISTICAL
from laptime.compare.comparison import compare
from laptime.compare.load import load
from laptime.records import ProbeRecord, Rung
from laptime.variants import resolve

ROOT = Path(__file__).resolve().parents[2]


def run_script(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Read by every interpreter that starts, children too.
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{BLOCKED}")
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}",
        "LAPTIME_HOME": str(tmp_path / "home"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(ROOT / "scripts" / "benchmarks" / "gpu.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.long
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


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "benchmarks"))
    module = importlib.import_module("gpu")
    monkeypatch.setattr(module, "probe_slow_rungs", lambda probe, *_: probe)
    return module


def test_it_tries_what_a_budget_holds_and_says_so_of_the_rest(gpu):
    plan, _ = gpu.plan_of(gpu.parse(["--out", "."]), ProbeRecord(refusals={"bf16": "no units"}))
    tried = {name for group in plan.rungs for name in group}
    assert {"graph", "large-batch", "compile", "compile-reduce-overhead", "evaluate-on-cpu"} <= tried
    assert not tried & {*STATISTICAL, "compile-max-autotune", "bf16", "lightning"}
    reasons = {left.variant: left.reason for left in plan.left_out}
    assert reasons["cuda-bf16"] == "no units"
    assert "--rungs" in reasons["cuda-flip"]
    plan, _ = gpu.plan_of(gpu.parse(["--out", ".", "--rungs", "workers,flip"]), ProbeRecord())
    assert [group[-1] for group in plan.rungs] == ["workers", "flip"]


@pytest.mark.parametrize(
    ("workload", "tried", "never"),
    [
        ("eurosat", {"resident", "bf16", "channels-last", "graph", "compile"}, {"parsed-once", "lightning"}),
        ("detection", {"parsed-once", "resident", "folded-norms", "fixed-shapes"}, {"graph", "flip", "lightning"}),
    ],
)
def test_other_workloads_have_their_own_rungs_and_no_peers(gpu, tmp_path, workload, tried, never):
    asked = gpu.parse(["--workload", workload, "--out", str(tmp_path)])
    data = make_data_spec(train=100, test=10)
    bench = gpu.Bench(asked, data, ProbeRecord(), time.monotonic())
    rungs = {name for group in bench.plan.rungs for name in group}
    assert tried <= rungs
    assert not never & rungs
    assert bench.record.workload == workload
    assert bench.request.workload == workload
    assert workload not in gpu._PEERS


def test_rungs_leave_time_for_the_optimized_variant_and_the_peers(gpu, tmp_path):
    asked = gpu.parse(["--out", str(tmp_path), "--budget-s", "500"])
    data = make_data_spec(train=100, test=10)
    bench = gpu.Bench(asked, data, ProbeRecord(), time.monotonic())
    assert 0 < bench._rung_limit_s("cuda-baseline") <= 75
    late = gpu.Bench(asked, data, ProbeRecord(), time.monotonic() - 360)
    assert late.left_s() > 130
    assert late._rung_limit_s("cuda-baseline") < 0
    assert late._enter(resolve("cuda-flip"), Rung(variant="cuda-flip"), late._rung_limit_s("cuda-baseline")) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path):
    done = run_script(tmp_path, "--data", "synthetic", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "no CUDA device" in done.stderr
    assert not (tmp_path / "out").exists()
