"""`scripts/bench peers` and `steps`: all sides train alike, settings end with their turn, intervals give verdicts."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.samples import write_folder
from tests.unit.conftest import BENCHMARKS, make_spec
from tests.unit.data.box_samples import write_photographs

from laptime.compare.statistics import Estimate
from laptime.data.boxes.tensors import open_boxes
from laptime.data.tensors import limit, open_tensors
from laptime.ladder.data import fetch_data
from laptime.places import Places
from laptime.records import EpochRecord, Machine, RunRecord

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def peers(script):
    return script("peers")


@pytest.fixture
def goals(script):
    return script("goals")


@pytest.fixture
def peer_data(script):
    return script("peer_data")


def run_bench(name, options, folder):
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *options, "--out", str(folder / "page.md")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "LAPTIME_HOME": str(folder / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=290)
    assert done.returncode == 0, done.stderr
    return (folder / "page.md").read_text()


def losses_in(page):
    """The losses of all sides, as their rows say them: the rows of the other tables end with a verdict."""
    rows = [line for line in page.splitlines() if line.startswith(("| plain", "| lap", "| Light", "| Acc"))]
    return [row.split("|")[-2].strip() for row in rows if row.split("|")[-2].strip().replace(".", "").isdigit()]


@pytest.mark.long
@pytest.mark.parametrize(
    ("workload", "options"),
    [
        ("cifar", ["--images", "72", "--epochs", "2"]),
        ("eurosat", ["--images", "6", "--epochs", "2", "--batch", "4"]),
        ("detection", ["--images", "3", "--epochs", "1"]),
    ],
)
def test_all_sides_train_to_the_same_losses(tmp_path, workload, options):
    if workload == "detection":
        data = write_photographs(tmp_path / "images", 6)
    else:
        data = write_folder(tmp_path / "images", train=24, test=4, size=64 if workload == "eurosat" else 32)
    page = run_bench("peers", ["--workload", workload, "--data", str(data), "--rounds", "1", *options], tmp_path)
    losses = losses_in(page)
    assert len(losses) == 8
    assert len(set(losses)) == 1
    assert page.count("| laptime over | ratio in pairs by turns |") == 2


def images_spec(folder, count, tests=10):
    spec = make_spec(limit_train=count, limit_test=tests)
    return spec.model_copy(update={"data": folder})


def test_scripts_get_the_images_that_laptime_keeps_under_the_same_limit(peer_data, tmp_path):
    data = fetch_data("cifar", str(write_folder(tmp_path / "images")), Places(tmp_path / "home"))
    whole = open_tensors(data).train
    for count in (50, len(whole)):
        store = peer_data.cut_store(images_spec(data, count), tmp_path / f"store_{count}")
        kept = limit(whole, count if count < len(whole) else None)
        assert np.array_equal(np.load(store / "train_images.npy"), kept.images.numpy())
        assert np.load(store / "train_labels.npy").tolist() == kept.labels.tolist()
    assert len(np.load(store / "test_labels.npy")) == 10


@pytest.mark.parametrize("limited", [True, False])
def test_a_peer_of_the_gpu_bench_trains_on_all_classes_of_a_store_that_has_them_in_order(
    peers, tmp_path, monkeypatch, limited
):
    runs = importlib.import_module("peer_runs")
    (tmp_path / "looking.py").write_text(
        "import json, sys, numpy\n"
        "labels = [numpy.load(f'{sys.argv[1]}/{split}_labels.npy') for split in ('train', 'test')]\n"
        "print(json.dumps({'epoch_s': 1, 'samples': len(labels[0]), 'steps': min(len(set(l)) for l in labels)}))\n"
    )
    monkeypatch.setattr(runs, "PEERS", tmp_path)
    data = fetch_data("cifar", str(write_folder(tmp_path / "images")), Places(tmp_path / "home"))
    spec = images_spec(data, 30 if limited else None, 20 if limited else None)
    found = runs.run_peer(spec.model_copy(update={"variant": "peer-looking"}), print, tmp_path / "log.txt")
    epoch = found["epochs"][0]
    assert epoch.samples == (30 if limited else len(np.load(f"{data.path}/train_labels.npy")))
    assert epoch.steps == len(data.classes)


def test_scripts_get_the_photographs_and_the_weights_that_laptime_begins_with(peer_data, tmp_path):
    data = fetch_data("detection", str(write_photographs(tmp_path / "images", 8)), Places(tmp_path / "home"))
    spec = images_spec(data, 3, 1).model_copy(update={"workload": "detection"})
    store = peer_data.cut_store(spec, tmp_path / "store")
    said = json.loads((store / "meta.json").read_text())
    assert said["train"] == list(open_boxes(data, 3, 1).train.dataset.names)
    assert all((store / "images" / name).is_file() for name in said["train"])
    assert (store / "boxes.csv").read_bytes() == (Path(data.path) / "boxes.csv").read_bytes()
    assert torch.load(store / "weights.pt")["backbone.body.conv1.weight"].isfinite().all()


def test_sizes_are_the_workloads_own_unless_options_say(peers):
    few = peers.parse(["--workload", "detection"])
    assert (few.images, few.epochs, few.batch, few.data) == (4, 2, 1, "synthetic")
    assert peers.parse(["--workload", "eurosat", "--images", "8"]).images == 8
    with pytest.raises(SystemExit):
        peers.parse(["--workload", "eurosat", "--images", "17"])


def bench_of(peers, tmp_path, **epoch_s):
    """A bench whose sides took some seconds in each of their rounds, under both settings."""
    bench = peers.Bench(make_spec(), tmp_path, tmp_path, machine=Machine())
    names = {"plain": "plain script", "laptime": "laptime", "lightning": "Lightning", "accelerate": "Accelerate"}
    for setting in peers.SETTINGS:
        for side, times in epoch_s.items():
            rounds = [(EpochRecord(index=0, epoch_s=t, samples=1, train_loss=0.5),) for t in times]
            bench.found[setting, names[side]] = rounds
    return bench


def test_laptime_over_each_side_is_a_mean_of_ratios_by_round(peers, tmp_path):
    """A machine that is twice as slow in one round changes no ratio."""
    ours, slow = (1.0, 2.0, 1.0), (1.25, 2.5, 1.25)
    bench = bench_of(peers, tmp_path, plain=ours, laptime=ours, lightning=slow, accelerate=ours)
    found = bench.over("as users run them")
    assert found["Lightning"].point == pytest.approx(0.8)
    assert found["Lightning"].high == pytest.approx(0.8)
    asked = peers.parse(["--rounds", "3"])
    said = peers.page(bench, asked)
    assert said.count("| Lightning | 0.8000 (0.8000 to 0.8000) | below 1 | held |") == 2
    assert "which trained to the same losses" in said


def test_losses_that_part_end_the_bench(peers, tmp_path):
    bench = bench_of(peers, tmp_path, plain=(1.0,), laptime=(1.0,))
    bench.check_losses()
    other = EpochRecord(index=0, epoch_s=1.0, samples=1, train_loss=0.6)
    bench.found["as users run them", "laptime"] = [(other,)]
    with pytest.raises(SystemExit, match=r"laptime trained to losses \[0\.6\]"):
        bench.check_losses()


def test_steps_ends_with_1_where_an_interval_says_that_a_goal_is_missed(peers, monkeypatch, tmp_path, capsys):
    steps = importlib.import_module("steps")
    ratios = {(one, other): [1.0, 1.0] for one, other in steps._PAIRS}
    monkeypatch.setattr(steps, "spec_for", lambda *_: make_spec())
    monkeypatch.setattr(steps, "cut_store", lambda *_: tmp_path)
    monkeypatch.setattr(steps.Bench, "round", lambda *_: None)

    def made(bench, *_):
        bench.ratios, bench.turns, bench.times = ratios, [20], {side: [1.0] for side in steps.SIDES}
        return bench

    plain = steps.Bench
    monkeypatch.setattr(steps, "Bench", lambda *given: made(plain(*given)))
    monkeypatch.setattr(sys, "argv", ["steps", "--out", str(tmp_path / "page.md")])
    ratios["laptime", "Lightning"] = [0.9, 0.91]
    assert steps.main() == 0
    assert "| plain script | 1.0000 (1.0000 to 1.0000) | at most 1.01 | held |" in (tmp_path / "page.md").read_text()
    ratios["laptime", "Accelerate"] = [1.02, 1.021]
    assert steps.main() == 1
    assert "and the goal is at most 1." in capsys.readouterr().err


def test_the_first_epoch_of_each_side_is_left_out(peers, monkeypatch, tmp_path):
    epochs = tuple(EpochRecord(index=i, epoch_s=float(i), samples=1) for i in range(3))
    monkeypatch.setattr(peers, "peer_epochs", lambda command: epochs)
    monkeypatch.setattr(peers, "launch", lambda *_: RunRecord(status="done", epochs=epochs))
    bench = peers.Bench(make_spec(), tmp_path, tmp_path)
    bench.round(0)
    assert {bench.laps(setting, side).epochs for setting in peers.SETTINGS for side in peers.SIDES} == {((1.0, 2.0),)}


def test_a_setting_ends_with_its_turn(peers, monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    for setting, added in peers.SETTINGS.items():
        with peers.environment(added):
            assert os.environ.get("GLIBC_TUNABLES") == added.get("GLIBC_TUNABLES"), setting
        assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.check=0"


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((0.98, 1.009), "held"),
        ((0.99, 1.02), "open, likely"),
        ((1.005, 1.04), "open, unlikely"),
        ((1.02, 1.05), "missed"),
    ],
)
def test_a_goal_is_held_missed_or_left_open_by_its_interval(goals, interval, said):
    found = Estimate(float(np.mean(interval)), *interval, n=6)
    assert goals.GOALS["plain script"].verdict(found).startswith(said)
    broken = goals.missed(dict.fromkeys(goals.GOALS, found))
    assert bool(broken) is (interval[0] > 1.0)


def test_as_fast_as_lightning_is_not_faster(goals):
    same = Estimate(1.0, 1.0, 1.0, n=2)
    assert goals.GOALS["Lightning"].verdict(same) == "missed"
    assert goals.GOALS["Accelerate"].verdict(same) == "held"
    assert goals.GOALS["Lightning"].verdict(Estimate(1.0, None, None, n=1)) == "one round shows nothing"


def test_a_peer_that_fails_says_why_and_leaves_all_that_it_said(peers, monkeypatch, tmp_path):
    runs = importlib.import_module("peer_runs")
    said = "torch._inductor.exc.InductorError: no compiler\n\nSet TORCHDYNAMO_VERBOSE=1 for the whole stack\n"
    (tmp_path / "failing.py").write_text(f"import sys\nsys.stderr.write({said!r})\nsys.exit(3)\n")
    monkeypatch.setattr(runs, "PEERS", tmp_path)
    found = runs.run_peer(make_spec(variant="peer-failing"), print, tmp_path / "log.txt")
    assert found["status"] == "failed"
    assert found["error"] == (
        "the peer ended with 3; last words: torch._inductor.exc.InductorError: no compiler (see log.txt)"
    )
    assert (tmp_path / "log.txt").read_text() == said
    assert runs.last_words("Killed") == "Killed"
    assert runs.last_words("") == "nothing"


@pytest.mark.parametrize("missing", [None, "there is no triton: install it"])
def test_the_expert_runs_without_a_compiler_and_says_so(peers, monkeypatch, tmp_path, missing):
    runs = importlib.import_module("peer_runs")
    script = """import json, sys; print(json.dumps({"epoch_s": 1 + ("--mode" in sys.argv), "samples": 1}))\n"""
    (tmp_path / "expert.py").write_text(script)
    monkeypatch.setattr(runs, "PEERS", tmp_path)
    monkeypatch.setattr(runs, "missing_compiler", lambda device: missing)
    spec = make_spec(variant="peer-expert", device="cuda")
    record = RunRecord(status="done").model_copy(update=runs.run_peer(spec, print, tmp_path / "log.txt"))
    assert record.epochs[0].epoch_s == 1 + bool(missing)
    assert record.notes == ((f"without torch.compile: {missing}",) if missing else ())
