"""What a printed script makes of images with other channels, and of a machine with less room than is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from tests.samples import write_folder
from tests.unit.script.script_runs import EPOCHS, run_laptime, run_scripts
from typer.testing import CliRunner

from laptime.cli import app
from laptime.data.fetch import fetch
from laptime.engine import room
from laptime.errors import UsageError
from laptime.ladder.fitting import fit_here
from laptime.optimizations import loader_room
from laptime.preflight import fitting
from laptime.script import Fit, print_script
from laptime.spec import DataSpec, RunSpec
from laptime.variants import resolve

# Both ways to read images, and what maps the net's sizes by a run on shapes.
BANDED = ("cpu-baseline", "cpu-baseline+resident+no-reads+channels-last+dead-taps+products:layers=all")


@pytest.fixture(scope="module")
def tiles(tmp_path_factory) -> DataSpec:
    """Five bands out of tiles of thirteen, 16 bits each."""
    root, values = tmp_path_factory.mktemp("tiles"), np.random.default_rng(0)
    for name in ("Forest", "River"):
        (root / "tif" / name).mkdir(parents=True)
        for number in range(20):
            tile = values.integers(0, 6000, (32, 32, 13), dtype=np.uint16)
            tifffile.imwrite(root / "tif" / name / f"{name}_{number}.tif", tile)
    return fetch("cifar", f"{root / 'tif'}#bands=8,4,3,2,12", root)


@pytest.fixture(scope="module")
def printed(tiles, tmp_path_factory):
    scripts = {name: (print_script(resolve(name), "cifar"), ["--data", tiles.path]) for name in BANDED}
    return run_scripts(tmp_path_factory.mktemp("scripts"), scripts)


@pytest.mark.parametrize("name", BANDED)
def test_a_script_trains_on_bands_to_the_losses_of_the_run(name, printed, tiles, tmp_path):
    record = run_laptime(resolve(name), "cifar", tiles, tmp_path)
    assert len(printed[name]) == EPOCHS
    for found, epoch in zip(printed[name], record.epochs, strict=True):
        assert found[0::2] == pytest.approx((epoch.train_loss, epoch.test_loss), abs=1e-6, rel=0)
        assert found[1::2] == pytest.approx((epoch.train_accuracy, epoch.test_accuracy), abs=1e-4, rel=0)


def test_a_script_takes_the_batch_and_the_workers_for_which_there_is_room():
    text = print_script(resolve("cpu-baseline"), "eurosat", fit=Fit(128, 2, ("no room for 1024", "nor for 20")))
    assert "# Where this was printed: no room for 1024; nor for 20.\nBATCH_SIZE = 128\n" in text
    assert "num_workers=2," in text
    text = print_script(resolve("cpu-baseline"), "eurosat")
    assert "BATCH_SIZE = 1024\n" in text
    assert "num_workers=20," in text
    assert "Where this was printed" not in text


def spec_of(data: DataSpec, workload: str) -> RunSpec:
    return RunSpec(workload=workload, variant="cpu-baseline", data=data, batch_size=1024, learning_rate=1e-3)


def test_room_is_looked_for_as_a_training_does(monkeypatch, tmp_path):
    """Of 102 images a batch holds no more, and halves of that, not of 1,024; loader processes get their share."""
    monkeypatch.setattr(room, "allowed_memory", lambda: 3 * 2**30)
    monkeypatch.setattr(loader_room, "allowed_memory", lambda: 3 * 2**30)
    few = fetch("eurosat", str(write_folder(tmp_path / "images", train=34, test=2, size=64)), tmp_path)
    found = fitting.fit(spec_of(few, "eurosat"))
    assert found["batch_size"] == 51
    assert 0 < found["workers"] < 20
    assert "a batch of 102 needs about" in found["notes"][0]
    many = few.model_copy(update={"path": "", "train_count": 21_600})
    found = fitting.fit(spec_of(many, "eurosat"))
    assert found["batch_size"] == 64
    assert [note.partition(" needs")[0] for note in found["notes"][:4]] == [
        f"a batch of {size}" for size in (1024, 512, 256, 128)
    ]


def test_a_process_of_its_own_looks_for_room(tmp_path):
    few = fetch("eurosat", str(write_folder(tmp_path / "images", train=3, test=1, size=64)), tmp_path)
    found = fit_here(resolve("cpu-baseline"), "eurosat", few)
    assert found.batch_size == 1024
    assert found.workers > 0
    assert fit_here(resolve("cpu-baseline"), "cifar") == Fit(32, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_the_script_of_one_is_as_the_tutorials_ask():
    found = fit_here(resolve("cuda-baseline"), "eurosat")
    assert (found.batch_size, found.workers) == (1024, 20)
    assert "no GPU" in found.notes[0]


def test_explain_prints_for_the_data_that_are_given(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "home"))
    images = write_folder(tmp_path / "images", train=3, test=1, size=64)
    asked = ["explain", "cpu-baseline", "--code", "--workload", "eurosat", "--data", str(images)]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    assert "BATCH_SIZE = 1024\n" in found.stdout
    asked.remove("--code")
    found = CliRunner().invoke(app, asked)
    assert found.exit_code != 0


def test_what_has_no_script_is_refused_before_anything_is_fitted_to_the_machine(monkeypatch):
    monkeypatch.setattr("laptime.ladder.fitting.run_child", lambda *_: pytest.fail("a process was started"))
    asked = ["explain", "cpu-baseline+ddp:batchnorm=sync", "--code", "--workload", "eurosat"]
    found = CliRunner().invoke(app, asked)
    assert isinstance(found.exception, UsageError)
    assert "Leave ddp out" in str(found.exception)


@pytest.mark.parametrize(("flags", "has"), [("avx2", False), ("avx2 avx512f", True)])
def test_a_script_has_no_bf16_where_this_cpu_can_only_emulate_it(monkeypatch, flags, has):
    monkeypatch.setattr("laptime.devices._instruction_sets", lambda: tuple(flags.split()))
    found = CliRunner().invoke(app, ["explain", "cpu-optimized", "--code"])
    assert found.exit_code == 0, found.output
    assert ("bfloat16" in found.stdout) is has
    assert ("left out: bf16, since" in found.stderr) is not has
    named = CliRunner().invoke(app, ["explain", "cpu-bf16", "--code"])
    assert "bfloat16" in named.stdout
