"""`scripts/bench peers`: all sides get the same images, settings end with their turn, verdicts follow the intervals."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.samples import write_folder
from tests.unit.conftest import make_spec

from laptime.compare.statistics import Estimate
from laptime.data.tensors import limit, open_tensors
from laptime.ladder.data import fetch_data
from laptime.places import Places
from laptime.records import EpochRecord, RunRecord

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "benchmarks"))
    return importlib.import_module("peers")


@pytest.mark.long
def test_all_sides_train_to_the_same_losses(tmp_path):
    images, out = write_folder(tmp_path / "images", train=24, test=4), tmp_path / "page.md"
    command = [sys.executable, str(ROOT / "scripts" / "benchmarks" / "peers.py"), "--data", str(images)]
    command += ["--rounds", "1", "--images", "72", "--epochs", "2", "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "LAPTIME_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = [line for line in out.read_text().splitlines() if line.startswith(("| plain", "| lap", "| Light", "| Acc"))]
    assert len(rows) == 8
    assert len({row.split("|")[-2] for row in rows}) == 1


def test_scripts_get_the_images_that_laptime_keeps_under_the_same_limit(peers, tmp_path):
    data = fetch_data("cifar", str(write_folder(tmp_path / "images")), Places(tmp_path / "home"))
    whole = open_tensors(data).train
    for count in (50, len(whole)):
        store = peers.cut_store(data, count, tmp_path / f"store_{count}")
        kept = limit(whole, count if count < len(whole) else None)
        assert np.array_equal(np.load(store / "train_images.npy"), kept.images.numpy())
        assert np.load(store / "train_labels.npy").tolist() == kept.labels.tolist()
    assert len(np.load(store / "test_labels.npy")) == 10


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
    [((0.98, 1.009), "yes"), ((0.99, 1.02), "likely"), ((1.005, 1.04), "unlikely"), ((1.02, 1.05), "no (")],
)
def test_a_goal_is_held_broken_or_left_open_by_its_interval(peers, interval, said):
    found = Estimate(float(np.mean(interval)), *interval, n=6)
    assert peers._verdict(found, 1.01).startswith(said)
