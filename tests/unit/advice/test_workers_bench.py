"""`scripts/bench advice`: what all rules together say of a loader that sleeps and of one that computes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laptime.records import EpochRecord, Machine, RunRecord
from laptime.records.breakdown import Breakdown, Quartiles, SetupRecord

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bench(script):
    return script("advice")


def a_record(step_ms: float, data_ms: float = 0.1, busy: bool = False, noise: float = 0.02, cpu_ms: float = 80.0):
    """Of steps on two cores; both epochs alike."""
    half = step_ms * noise / 2
    broken = Breakdown(
        steps=16,
        step_ms=Quartiles(low=step_ms - half, median=step_ms, high=step_ms + half),
        parts_ms={"data": Quartiles(low=data_ms, median=data_ms, high=data_ms)},
        fetch_cpu_share=0.99 if busy else 0.1,
        process_cpu_ms=cpu_ms + busy * data_ms,
    )
    epochs = tuple(EpochRecord(index=i, epoch_s=1.0, samples=512, steps=16, breakdown=broken) for i in range(2))
    setup = SetupRecord(batch_size=32, loader="items", optimizer_kernel="fused")
    return RunRecord(status="done", machine=Machine(cores=2, load_before=1.0), epochs=epochs, setup=setup)


BUSY = (a_record(60, 17, busy=True, cpu_ms=86), a_record(65))


def test_a_good_prediction_and_no_workers_for_the_busy_loader_are_what_is_wanted(bench, capsys):
    assert bench.report({"sleeps": (a_record(60, 17), a_record(45)), "busy": BUSY}) == 0
    said = capsys.readouterr().out
    assert "| sleeps | 60.0 (17.0 of data) | 0.10 | 80.0 | 0.72 to 0.75 | 0.75 (0.75 to 0.75) | -2.4% |" in said
    assert "| busy | 60.0 (17.0 of data) | 0.99 | 103.0 | no | 1.08 (1.08 to 1.08) | – |" in said
    assert "sleeps: Most worth doing: The training waits for data" in said
    assert "- workers withheld: fetching computes" in said


@pytest.mark.parametrize(
    ("sleeps", "busy"),
    [
        ((a_record(60, 17), a_record(55)), BUSY),  # off by a fifth
        ((a_record(60, 17), a_record(38)), BUSY),  # the other way
        ((a_record(60, 1), a_record(60)), BUSY),  # nothing is said of it
        ((a_record(60, 17), a_record(45)), (a_record(60, 17), a_record(45))),  # workers for the busy one, too
    ],
)
def test_anything_else_fails(bench, sleeps, busy):
    assert bench.report({"sleeps": sleeps, "busy": busy}) == 1


def test_what_a_worker_brings_is_measured_by_epochs_that_followed_each_other(bench):
    """The second half of a minute took twice as long: no ratio of medians over all epochs."""
    quick, slow = a_record(40), a_record(80)
    before = quick.model_copy(update={"epochs": (*quick.epochs, *slow.epochs, slow.epochs[0])})
    quick, slow = a_record(30), a_record(60)
    after = quick.model_copy(update={"epochs": (*quick.epochs, *slow.epochs, slow.epochs[0])})
    assert bench._measured(before, after).point == pytest.approx(0.75, rel=0.01)
    before = before.model_copy(update={"epochs": before.epochs[::-1]})
    assert bench._measured(before, after).low < 0.6


def test_the_machine_s_noise_withholds_the_advice_with_the_reason(bench, capsys):
    noisy = a_record(60, 17, noise=0.4)
    assert bench.report({"sleeps": (noisy, a_record(45)), "busy": BUSY}) == 1
    said = capsys.readouterr().out
    assert "The machine was too noisy to judge: steps scatter so that the middle one is known to within 13 %" in said
    assert "- workers withheld: the machine was too noisy for numbers (noise 13.1%)" in said


@pytest.mark.long
def test_it_trains_both_loaders_and_reports():
    command = [sys.executable, str(ROOT / "scripts" / "benchmarks" / "advice.py"), "--rounds", "1", "--steps", "7"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode in (0, 1), done.stderr  # on a shared machine either may be
    assert done.stdout.count("\n| ") == 3  # the head and a row for each loader
    assert "\nbusy: " in done.stdout
