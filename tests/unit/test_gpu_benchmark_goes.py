"""`scripts/bench gpu` goes on: over several goes in one folder, and past whatever one of its processes does."""

import importlib
import shutil

import pytest
from tests.unit.gpu_examples import bench_of, trained

from laptime.compare.load import load
from laptime.errors import RunError
from laptime.ladder.surroundings import run_probe
from laptime.places import Places
from laptime.records import write_record


class Starts:
    """Stands for processes, each of which takes 30 s of a budget, and less an epoch than those before it."""

    def __init__(self):
        self.bench, self.specs, self.failing, self.hangs = None, [], {}, False

    def launch(self, launcher, spec, folder, hooks):
        self.specs.append(spec)
        left = self.failing.get(spec.variant, 0)
        self.bench.begin -= spec.timeout_s if self.hangs and left > 0 else 30
        self.failing[spec.variant] = left - 1
        status = ("failed", "a driver's mood") if left > 0 else ("done", None)
        record = trained(spec, 1 / len(self.specs), *status)
        record = record.model_copy(update={"started_at": float(len(self.specs))})
        write_record(folder / "record.json", record)
        return record

    def go(self, gpu, folder, *arguments):
        """Names and repeats of what one go starts."""
        self.specs, before = self.specs[:], len(self.specs)
        self.bench = bench_of(gpu, folder, *arguments)
        self.bench.run()
        self.bench.finish("done")
        return [(s.variant, s.repeat) for s in self.specs[before:]]


@pytest.fixture
def starts(monkeypatch, gpu):
    found, module = Starts(), importlib.import_module("gpu_bench")
    monkeypatch.setattr(module, "launch", found.launch)
    monkeypatch.setattr(module, "run_peer", lambda *_: {})
    return found


def decisions(folder):
    return [(r.variant, r.on, r.joined) for r in load(folder)[0].rungs]


def test_goes_of_one_budget_each_go_on_and_measure_nothing_again(gpu, tmp_path, starts, monkeypatch):
    first = starts.go(gpu, tmp_path)
    assert 14 <= len(first) <= 17
    goes = [first]
    while goes[-1]:
        assert len(goes) < 6
        goes.append(starts.go(gpu, tmp_path))
    found = [step for go in goes for step in go]
    assert len(found) == len(set(found))
    assert len(goes) > 2
    once = Starts()
    monkeypatch.setattr(importlib.import_module("gpu_bench"), "launch", once.launch)
    assert once.go(gpu, tmp_path / "once", "--budget-s", "5000") == found


def test_a_rung_that_failed_comes_once_more_at_the_end_on_the_best_so_far(gpu, tmp_path, starts):
    starts.failing = {"cuda-no-reads": 1, "cuda-tf32": 5}
    options = ("--phases", "headline,rungs", "--budget-s", "2000")
    names = [name for name, _ in starts.go(gpu, tmp_path, *options)]
    assert names[-2:] == ["cuda-no-reads", "cuda-tf32"]
    assert (names.count("cuda-no-reads"), names.count("cuda-tf32"), len(names)) == (2, 2, len(set(names)) + 2)
    last = next(s for s in reversed(starts.specs) if s.variant == "cuda-no-reads")
    assert {o.name for o in last.optimizations} >= {"resident", "graph", "no-reads"}
    assert last.timeout_s > 1000  # all that is left
    joined = {variant: joined for variant, _, joined in decisions(tmp_path)}
    assert (joined["cuda-no-reads"], joined["cuda-tf32"]) == (True, False)
    before = decisions(tmp_path)
    # Another go judges each beside the best of its time, and what failed comes behind all others.
    assert starts.go(gpu, tmp_path, *options) == [("cuda-tf32", 0)] * 2
    assert sorted(decisions(tmp_path)) == sorted(before)
    starts.failing = {}
    assert starts.go(gpu, tmp_path, *options) == [("cuda-tf32", 0)]
    assert {o.name for o in starts.specs[-1].optimizations} >= {"no-reads", "tf32"}
    assert starts.go(gpu, tmp_path, *options) == []


def test_a_rung_whose_limit_is_not_left_is_not_tried_again(gpu, tmp_path, starts):
    starts.failing = {"cuda-workers": 1}
    names = [
        name for name, _ in starts.go(gpu, tmp_path, "--phases", "rungs", "--rungs", "workers", "--budget-s", "104")
    ]
    assert names == ["cuda-workers"]


def test_whatever_a_process_raises_is_its_failure_alone(gpu, tmp_path, starts, monkeypatch, capfd):
    module = importlib.import_module("gpu_bench")

    def launch(launcher, spec, folder, hooks):
        if spec.variant == "cuda-resident":
            raise ValueError("no such record")
        if spec.variant == "cuda-workers":
            raise OSError(28, "No space left on device", str(folder))
        return starts.launch(launcher, spec, folder, hooks)

    monkeypatch.setattr(module, "launch", launch)
    names = {name for name, _ in starts.go(gpu, tmp_path, "--phases", "headline,rungs")}
    assert {"cuda-baseline", "cuda-optimized", "cuda-pinned", "cuda-graph"} <= names
    errors = {r.spec.variant: r.error for r in load(tmp_path)[1] if r.status == "failed"}
    assert errors["cuda-resident"] == "ValueError: no such record"
    assert errors["cuda-workers"].endswith(
        "No space left on device: check that the place exists, is writable and has room."
    )
    said = capfd.readouterr()
    assert said.err.count("Traceback") == 2  # of the error that nobody foresaw, each time
    gpu._report(starts.bench)
    assert "cuda-graph" in capfd.readouterr().out


def test_a_folder_that_takes_nothing_any_more_takes_no_time_away(gpu, tmp_path, starts, monkeypatch, capfd):
    out, launch = tmp_path / "out", starts.launch

    def launch_and_lose(launcher, spec, folder, hooks):
        record = launch(launcher, spec, folder, hooks)
        if len(starts.specs) == 2:
            shutil.rmtree(out)
            out.write_text("a file")
        return record

    monkeypatch.setattr(importlib.import_module("gpu_bench"), "launch", launch_and_lose)
    starts.go(gpu, out, "--phases", "headline,rungs", "--rungs", "workers")
    gpu._report(starts.bench)
    said = capfd.readouterr().out
    assert said.count("What is measured from here on stands in this output alone.") == 1
    assert "\ncuda-optimized  " in said
    assert "cuda-workers" in said


def test_a_part_of_the_report_that_cannot_be_told_takes_no_other_away(gpu, tmp_path, starts, monkeypatch, capfd):
    starts.go(gpu, tmp_path, "--phases", "headline")
    monkeypatch.setattr(gpu, "checks", lambda runs: runs["nobody"])
    gpu._report(starts.bench)
    said = capfd.readouterr()
    assert "KeyError: 'nobody'" in said.err
    assert "\ncuda-optimized: " in said.out


def test_a_baseline_that_hangs_leaves_the_optimized_variant_its_time(gpu, tmp_path, starts):
    starts.failing, starts.hangs = {"cuda-baseline": 1}, True
    starts.go(gpu, tmp_path, "--phases", "headline")
    baseline, optimized = starts.specs
    assert baseline.timeout_s == pytest.approx(350, abs=5)
    assert optimized.variant == "cuda-optimized"
    # In the next go it has all that is left: the limit may have been too low for this machine.
    assert starts.go(gpu, tmp_path, "--phases", "headline") == [("cuda-baseline", 0)]
    assert starts.specs[-1].timeout_s == pytest.approx(500, abs=5)


def test_a_probe_that_hangs_is_ended(tmp_path):
    places = Places(tmp_path)
    with pytest.raises(RunError, match=r"^probing this machine took more than 0 s and was ended: try again\.$"):
        run_probe(("cifar", "cpu"), places, print, limit_s=0.3)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_takes_no_records_is_refused_before_the_machine_is_probed(gpu, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(gpu, "run_probe", None)
    (tmp_path / "file").write_text("")
    asked = gpu.parse(["--out", str(tmp_path / "file" / "out"), "--data", str(tmp_path / "none")])
    with pytest.raises(gpu.UsageError, match=f"since {tmp_path / 'file'} is no folder that may be"):
        gpu._begun(asked, 0.0)
