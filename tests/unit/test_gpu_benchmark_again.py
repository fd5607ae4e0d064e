"""What `scripts/bench gpu` tries once more, and which folder it refuses."""

import importlib
import subprocess

import pytest
from tests.unit.conftest import make_data_spec
from tests.unit.gpu_examples import H200, bench_of, run_script, trained

from laptime.errors import UsageError
from laptime.ladder.surroundings import commit
from laptime.records import write_record


@pytest.mark.parametrize(("spent", "again"), [(0, ["0", "1", "2", "3"]), (400, [])])
def test_what_failed_comes_once_more_at_the_end_and_till_then_nothing_of_its_variant(
    gpu, tmp_path, monkeypatch, spent, again
):
    tried = []

    def launch(launcher, spec, folder, hooks):
        tried.append((spec.variant, str(spec.repeat), spec.timeout_s))
        late = spec.variant == "cuda-optimized+compile" and len(tried) < 4
        record = trained(spec, 0.1, *(("failed", "ran past 150 s") if late else ()))
        write_record(folder / "record.json", record)
        return record

    monkeypatch.setattr(importlib.import_module("gpu_bench"), "launch", launch)
    bench = bench_of(gpu, tmp_path, "--phases", "headline,compiled,seeds,profiles,rungs", spent=spent)
    bench.run()
    compiled = [(repeat, limit) for name, repeat, limit in tried if name == "cuda-optimized+compile"]
    assert [repeat for repeat, _ in compiled] == ["0", *again]
    assert tried[2][0] == "cuda-optimized+compile"
    assert [name for name, *_ in tried[len(tried) - len(again) :]] == ["cuda-optimized+compile"] * len(again)
    statuses = [r.status for r in bench.runs["cuda-optimized+compile"]]
    assert statuses == (["done"] * 4 if again else ["failed"])
    if again:
        assert compiled[1][1] > 450  # all that is left
    # Of another go, too: the process that failed comes before those that stand on it.
    assert not spent or bench_of(gpu, tmp_path, "--phases", "headline,compiled,seeds").run() is None
    assert not spent or [repeat for name, repeat, _ in tried if "compile" in name] == ["0", "0", "1", "2"]


def test_a_folder_of_another_commit_is_refused_before_the_machine_is_probed(gpu, tmp_path, monkeypatch):
    monkeypatch.setenv("LAPTIME_COMMIT", "aaaa")
    bench_of(gpu, tmp_path / "out")
    monkeypatch.setenv("LAPTIME_COMMIT", "bbbb")
    # The probe would say that there is no GPU, or take its time, and there are no such data.
    done = run_script(tmp_path, "--data", str(tmp_path / "none"), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr == f"--out {tmp_path / 'out'} holds a ladder of another commit: give another folder.\n"


def test_what_a_go_leaves_makes_no_other_commit(gpu, tmp_path, monkeypatch):
    bench = importlib.import_module("gpu_bench")
    monkeypatch.delenv("LAPTIME_COMMIT", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.py").write_text("")
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], check=True)
    before = bench.commit_here()
    (tmp_path / "gpu.tgz").write_text("")
    assert before
    assert bench.commit_here() == before
    assert commit() == f"{before}+"
    (tmp_path / "code.py").write_text("changed")
    assert bench.commit_here() == f"{before}+"


@pytest.mark.parametrize("other", [("--workload", "eurosat"), ("--device", "cpu"), ("--limit-train", "40")])
def test_a_folder_of_other_options_is_refused_before_the_machine_is_probed(gpu, tmp_path, monkeypatch, other):
    bench_of(gpu, tmp_path)
    monkeypatch.setattr(gpu, "run_probe", None)
    with pytest.raises(UsageError, match=f"^--out {tmp_path} holds a ladder of another workload: give another folder"):
        gpu._begun(gpu.parse(["--data", str(tmp_path / "none"), "--out", str(tmp_path), *other]), 0.0)


def test_a_folder_of_other_data_is_refused(gpu, tmp_path):
    asked, data = bench_of(gpu, tmp_path).asked, make_data_spec(train=100, test=10)
    with pytest.raises(UsageError, match="another data set"):
        gpu.Bench(asked, data.model_copy(update={"digest": "1" * 64}), H200, 0.0)


def test_a_rung_that_there_is_not_is_refused_before_anything_is_done(tmp_path):
    done = run_script(tmp_path, "--rungs", "resident,chanels-last", "--out", str(tmp_path / "bench"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("unknown variant 'cuda-chanels-last': did you mean cuda-channels-last")
    assert not (tmp_path / "bench").exists()
