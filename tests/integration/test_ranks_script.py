"""Scripts of several ranks, started by torchrun without laptime, train to the losses of `laptime run` on as many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.own_files import JUDGED, WEIGHTS, write
from tests.samples import write_folder
from tests.unit.script.script_runs import EPOCHS, NUMBERS, assert_equal, numbers_of

from laptime.catalogue import find_workload
from laptime.data.fetch import fetch
from laptime.errors import UsageError
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.spec import DataSpec, RunSpec
from laptime.variants import Variant, resolve

# Of 63 images the last batch is one of 15, which two ranks share unequally.
TUNED = "cpu-baseline+resident+no-reads+large-batch:size=16+dead-taps+flip:mode=random+ema:every=1+ddp:tuned=true"
FLAT = "cpu-baseline+resident+large-batch:size=16+flat-reduce+label-smoothing+threads:count=1"
SELECTING = "cpu-baseline+large-batch:size=16+flip+ema:every=1+selective-backprop:keep=0.4:begin=0:end=1:every=3"
PLAIN = "cpu-baseline+ddp"


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> DataSpec:
    root = tmp_path_factory.mktemp("ranks-script")
    return fetch("cifar", str(write_folder(root / "images", train=21, test=5)), root)


def of_script(text: str, arguments: list[str], folder: Path) -> list[tuple[float, ...]]:
    """Losses and measures of quality by epoch of two ranks without laptime."""
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(
        [sys.executable, *start, *arguments, "--epochs", str(EPOCHS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [tuple(map(float, NUMBERS.findall(line))) for line in done.stdout.splitlines() if line.startswith("epoch")]


def of_run(variant: Variant, data: DataSpec, folder: Path) -> list[tuple[float | None, ...]]:
    """The same of two ranks by laptime."""
    entry = data.own or find_workload("cifar")
    spec = RunSpec(
        workload=data.own.name if data.own else "cifar",
        variant=variant.name,
        optimizations=variant.optimizations,
        data=data,
        batch_size=entry.batch_size,
        learning_rate=entry.learning_rate,
        epochs=EPOCHS,
        warmup_epochs=0,
        check=False,
        ranks=2,
        timeout_s=300,
    )
    record = launch("auto", spec, folder, Hooks())
    assert record.status == "done", record.error
    return numbers_of(record)


@pytest.mark.parametrize(
    "name", [TUNED, FLAT, f"{SELECTING}+ddp:tuned=true", f"{SELECTING}+flat-reduce+label-smoothing"]
)
def test_a_script_of_two_ranks_trains_to_the_losses_of_the_run(name, images, tmp_path):
    found = of_script(print_script(resolve(name), "cifar"), ["--data", images.path], tmp_path)
    assert_equal(found, of_run(resolve(name), images, tmp_path / "run"))


@pytest.mark.parametrize(("name", "drawing"), [("own_on_ranks", ""), ("weighted_on_ranks", WEIGHTS)])
def test_a_script_of_two_ranks_for_a_users_own_workload(name, drawing, tmp_path):
    data = inspect(write(tmp_path / f"{name}.py", JUDGED + drawing))
    text = print_script(resolve(PLAIN), "own", data)
    assert "        draw_apart(data.seed, epoch, RANK)\n" in text  # its net has dropout
    found = of_script(text, [], tmp_path)
    assert_equal(found, of_run(resolve(PLAIN), data, tmp_path / "run"))


def test_without_torchrun_it_says_how_it_is_started(images, tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(print_script(resolve(PLAIN), "cifar"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), "--data", images.path], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 1
    assert done.stderr.strip() == f"start it with torchrun: torchrun --standalone --nproc-per-node=2 {script}"


@pytest.mark.parametrize("option", ["batchnorm=sync", "scaling=weak"])
def test_what_a_script_of_ranks_does_not_show_is_refused(option):
    with pytest.raises(UsageError, match=r"has no script, because of ddp: .*Leave ddp out"):
        print_script(resolve(f"cpu-baseline+ddp:{option}"), "cifar")
