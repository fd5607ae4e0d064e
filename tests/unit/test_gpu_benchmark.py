"""`scripts/bench gpu` runs where there is nothing but torch, torchvision, numpy and pydantic."""

import gzip
import importlib
import json
from pathlib import Path

import pytest
import torch
from tests.samples import write_folder
from tests.unit.gpu_examples import H200, bench_of, run_script, trained

from laptime.catalogue import STATISTICAL, find_optimization
from laptime.compare.comparison import compare
from laptime.compare.load import load
from laptime.errors import UsageError
from laptime.records import CheckRecord, Machine, ProbeRecord, RecordingCheck, write_record


@pytest.mark.long
def test_a_dry_exercise_on_the_cpu_leaves_a_ladder_that_compare_reads(tmp_path):
    images, out = write_folder(tmp_path / "images", train=16, test=4), tmp_path / "out"
    options = ("--device", "cpu", "--rungs", "resident", "--final-epochs", "2", "--seeds", "2", "--limit-train", "40")
    phases = "headline,seeds,peers,rungs"
    done = run_script(tmp_path, "--data", str(images), "--out", str(out), "--phases", phases, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    ladder, records = load(out)
    assert ladder.status == "done"
    found = {(r.spec.variant, r.spec.repeat): r for r in records}
    assert set(found) == {
        *(("cpu-optimized", repeat) for repeat in range(2)),
        *((name, 0) for name in ("cpu-baseline", "cpu-resident", "peer-tutorial", "peer-expert")),
    }
    assert {r.status for r in records} == {"done"}
    assert found["cpu-resident", 0].check.passed
    assert found["cpu-optimized", 1].spec.optimizations == found["cpu-optimized", 0].settled
    assert len(found["peer-expert", 0].kept) == 2
    assert found["peer-expert", 0].kept[0].samples == 40
    rows = {row.variant: row for row in compare(ladder, records).rows}
    assert rows["peer-expert"].speedup > 0
    assert rows["cpu-optimized"].n == 2
    assert done.stdout.rstrip().endswith(f"laptime compare {out})")
    assert "cpu-optimized: " in done.stdout


def test_a_first_command_may_only_make_the_data_ready(tmp_path):
    images = write_folder(tmp_path / "images", train=2, test=1)
    done = run_script(tmp_path, "--data", str(images), "--fetch-only")
    assert done.returncode == 0, done.stderr
    store = Path(done.stdout.split("--data ")[-1].strip())
    assert (store / "meta.json").is_file()


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_it_says_so_in_one_sentence(tmp_path):
    done = run_script(tmp_path, "--data", "synthetic", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "no CUDA device" in done.stderr
    assert not (tmp_path / "out").exists()


def steps_of(gpu, *arguments, refused=()):
    plan = importlib.import_module("gpu_plan")
    return plan.planned(gpu.parse(["--out", ".", *arguments]), refused)


def test_the_most_important_comes_first(gpu):
    steps = steps_of(gpu)
    told = [(s.variant.name, s.repeat, s.epochs) for s in steps]
    assert told[:3] == [("cuda-baseline", 0, 8), ("cuda-optimized", 0, 8), ("cuda-optimized+compile", 0, 8)]
    assert told[3:7] == [(f"cuda-optimized{c}", r, 8) for c in ("", "+compile") for r in (1, 2)]
    assert told[7] == ("cuda-optimized", 3, 8)
    assert [s.repeat for s in steps if s.profile] == [3, 3, 1]
    assert not any(s.check for s in steps if s.profile or s.repeat)
    parts = [s for s in steps if s.phase == "parts"]
    assert parts[0].variant.name == "cuda-optimized-without-graph"
    assert {s.variant.name.rpartition("-without-")[2] for s in parts} == {
        o.name for o in steps[1].variant.optimizations
    }
    assert {s.epochs for s in parts} == {2}
    assert {o.name for o in steps[1].variant.optimizations} >= {"graph", "large-batch", "bf16", "products"}
    assert {s.variant.name for s in steps if s.phase == "peers"} == {"peer-expert", "peer-tutorial"}


def test_what_is_refused_or_not_asked_for_is_no_part_of_it(gpu):
    names = {s.variant.name for s in steps_of(gpu, refused=("compile", "bf16", "bf16-large"))}
    assert not any("compile" in name or "bf16" in name for name in names)
    steps = steps_of(gpu, "--phases", "headline", "--final-epochs", "3")
    assert [(s.variant.name, s.epochs) for s in steps] == [("cuda-baseline", 3), ("cuda-optimized", 3)]


def test_it_tries_rungs_at_the_baselines_own_batch_and_says_so_of_the_rest(gpu):
    plan_of = importlib.import_module("gpu_plan").plan_of
    plan, _ = plan_of(gpu.parse(["--out", "."]), ProbeRecord(refusals={"bf16": "no units"}))
    names = [group[-1] for group in plan.rungs]
    assert {"workers", "graph"} <= set(names)
    assert names[-1] == "evaluate-on-cpu"
    assert not set(names) & {*STATISTICAL, "large-batch", "compile", "bf16", "lightning"}
    reasons = {left.variant: left.reason for left in plan.left_out}
    assert reasons["cuda-bf16"] == "no units"
    assert "--rungs" in reasons["cuda-flip"]
    plan, _ = plan_of(gpu.parse(["--out", ".", "--rungs", "workers,flip"]), ProbeRecord())
    assert [group[-1] for group in plan.rungs] == ["workers", "flip"]


@pytest.mark.parametrize(
    ("workload", "tried", "never"),
    [
        ("eurosat", {"resident", "bf16", "channels-last", "graph"}, {"parsed-once", "lightning", "compile"}),
        ("detection", {"parsed-once", "resident", "folded-norms", "fixed-shapes"}, {"graph", "flip", "lightning"}),
    ],
)
def test_other_workloads_have_their_own_rungs_and_no_peers(gpu, tmp_path, workload, tried, never):
    bench = bench_of(gpu, tmp_path, "--workload", workload)
    rungs = {name for group in bench.plan.rungs for name in group}
    assert tried <= rungs
    assert not never & rungs
    assert bench.record.workload == workload
    assert bench.request.workload == workload
    steps = steps_of(gpu, "--workload", workload, refused=bench.plan.refused)
    assert not [s for s in steps if s.phase == "peers"]
    assert any("compile" in s.variant.name for s in steps) == (workload == "eurosat")
    assert steps[0].epochs == 2
    for step in steps:
        assert not {o.name for o in step.variant.optimizations} & never - {"compile"}
        assert {find_optimization(o.name).workload for o in step.variant.optimizations} <= {"", workload}


@pytest.fixture
def started(monkeypatch, gpu):
    """Specs of the processes that a bench starts, of which each takes less than the one before it."""
    specs = []

    def launch(launcher, spec, folder, hooks):
        specs.append(spec)
        record = trained(spec, 1 / len(specs))
        write_record(folder / "record.json", record)
        return record

    monkeypatch.setattr(importlib.import_module("gpu_bench"), "launch", launch)
    monkeypatch.setattr(importlib.import_module("gpu_bench"), "run_peer", lambda *_: {})
    return specs


def test_what_the_first_process_chose_holds_for_all_that_is_made_of_it(gpu, tmp_path, started):
    bench = bench_of(gpu, tmp_path)
    bench.run()
    bench.finish("done")
    made = [s for s in started if s.variant.startswith("cuda-optimized") and s.option("products") is not None]
    assert made[0].option("products") == {}
    whole = [s for s in made if s.option("dead-taps") is None]
    assert {s.option("products")["layers"] for s in made[1:] if s not in whole} == {"layer4"}
    # Its kernels are not cropped, so it asks anew which of them gain as products.
    assert whole
    assert all(s.option("products") == {} for s in whole)
    assert [s.variant for s in started if s.profile == "full"][:2] == ["cuda-optimized", "cuda-optimized+compile"]
    rungs = [s for s in started if s.epochs == 1]
    assert {len(s.optimizations) for s in rungs[:3]} == {1, 2, 3}  # each was faster, so each stands on those before
    later = [s for s in rungs if s.option("products") is not None]
    assert (later[0].option("products"), later[1].option("products")["layers"]) == ({}, "layer4")
    ladder, records = load(tmp_path)
    assert {r.variant: r.joined for r in ladder.rungs}["cuda-graph"] is True
    assert compare(ladder, records).rows[0].variant == "cuda-baseline"


def test_what_no_time_was_left_for_is_said_to_be_not_run(gpu, tmp_path, started, capsys):
    bench = bench_of(gpu, tmp_path, spent=490, probe=H200)
    bench.run()
    bench.finish("done")
    assert not started
    reasons = {left.variant: left.reason for left in load(tmp_path)[0].left_out}
    for name in (
        "cuda-baseline",
        "cuda-optimized+compile",
        "cuda-optimized-without-graph",
        "peer-expert",
        "cuda-graph",
    ):
        assert reasons[name].startswith("not run: of the budget ")
    gpu._report(bench)
    assert "not run, for want of time: cuda-baseline, cuda-optimized, " in capsys.readouterr().out


def test_a_step_needs_what_an_earlier_process_of_its_variant_took(gpu, tmp_path, started):
    bench = bench_of(gpu, tmp_path, "--seeds", "2")
    step = steps_of(gpu, "--seeds", "2")[0]
    assert bench._needs_s(step) == step.needs_s
    bench.runs[step.variant.name] = [trained(bench._spec(step), epoch_s=10.0)]
    assert bench._needs_s(step) == pytest.approx(2.0 + 8.0 + 8 * 10.0)


def test_the_same_command_again_goes_on(gpu, tmp_path, started, monkeypatch):
    bench_of(gpu, tmp_path, "--phases", "headline").run()
    assert [s.variant for s in started] == ["cuda-baseline", "cuda-optimized"]
    failed = tmp_path / "cuda-optimized" / "0" / "record.json"
    write_record(failed, trained(started[1], status="failed", error="a driver's mood"))
    again = bench_of(gpu, tmp_path, "--phases", "headline,parts")
    again.run()
    assert [s.variant for s in started][2:4] == ["cuda-optimized-without-graph", "cuda-optimized-without-no-reads"]
    assert started[-1].variant == "cuda-optimized"  # what failed comes last
    assert len(again.runs["cuda-baseline"]) == 1
    with pytest.raises(UsageError, match="another machine"):
        bench_of(gpu, tmp_path, probe=ProbeRecord(machine=Machine(gpus=("NVIDIA H100",))))
    with pytest.raises(UsageError, match="another workload"):
        bench_of(gpu, tmp_path, "--limit-train", "40")


def test_a_refused_contender_keeps_its_time_and_its_errors_in_the_table(gpu, tmp_path, started):
    bench = bench_of(gpu, tmp_path, "--phases", "headline,seeds", "--seeds", "2")
    bench.run()
    first, second = bench.runs["cuda-optimized"]
    check = CheckRecord(
        klass="numeric",
        loss_baseline=2.3,
        loss_variant=2.4,
        loss_error=0.043,
        loss_tolerance=0.03,
        gradient_error=0.2,
        gradient_tolerance=0.48,
        layer="layer3.1.conv2.weight",
        layer_error=0.31,
        layer_tolerance=0.25,
        recording=RecordingCheck(loss_error=0.0, loss_tolerance=0.01, moved="exp_avg", error=0.02, tolerance=0.25),
        passed=False,
    )
    bench.runs["cuda-optimized"] = [first.model_copy(update={"status": "wrong", "check": check}), second]
    table = importlib.import_module("gpu_table")
    line = next(one for one in table.table(bench.record, bench.runs) if one.startswith("cuda-optimized"))
    assert line.endswith("  1  refused by its check")
    assert "416.7 ms     2.4x" in line
    (said,) = table.checks(bench.runs)
    assert "REFUSED loss 4.3e-02/3.0e-02, gradient 2.0e-01/4.8e-01" in said
    assert "layer3.1.conv2.weight 3.1e-01/2.5e-01, replay 0.0e+00, exp_avg 2.0e-02/2.5e-01" in said
    (sentence,) = table.headline(bench.record, bench.runs)
    assert sentence == (
        "cuda-optimized: 333.3 ms an epoch (n=1), 3x cuda-baseline; accuracy 0.770 after 8 epochs, cuda-baseline "
        "0.770 after 8"
    )


def test_kernels_are_added_up_by_name_and_step(gpu, tmp_path):
    table = importlib.import_module("gpu_table")
    steps = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": n, "dur": 1} for n in (1, 2)]
    kernels = [
        {"ph": "X", "cat": "kernel", "name": n, "ts": 0, "dur": us} for n, us in (("a", 30), ("b", 500), ("a", 70))
    ]
    trace = tmp_path / "trace.json.gz"
    with gzip.open(trace, "wt") as file:
        json.dump({"traceEvents": [*steps, *kernels, {"ph": "M", "name": "process_name"}]}, file)
    assert table.by_kernel(trace) == [("b", 0.5, 0.25), ("a", 1.0, 0.05)]
    trace.write_bytes(trace.read_bytes()[:40])
    assert table.by_kernel(trace) == []
