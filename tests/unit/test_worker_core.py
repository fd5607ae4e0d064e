"""The worker runs where there is nothing but torch, torchvision, numpy and pydantic, and explains what went wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.unit.conftest import BLOCKED, make_data, make_spec

from laptime import worker
from laptime.engine.told import explain
from laptime.host.processes import end_tree
from laptime.records import PARTIAL, read_record

_PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def test_the_worker_needs_only_its_core():
    script = f"import sys\n{BLOCKED}import laptime.worker, laptime.preflight.probe\nlaptime.worker.machine()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["cli", "ladder", "launchers", "compare", "tracking", "catalogue", "ledger"])
def test_what_starts_fast_does_not_reach_torch(module):
    script = f"import sys, laptime.{module}; assert not {{'torch', 'mlflow', 'prefect', 'boto3'}} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_out_of_memory_is_called_by_its_name():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert "out of memory" in explain(caught.value)
    assert "batch smaller" in explain(caught.value)
    assert "out of memory" in explain(MemoryError())
    with pytest.raises(ValueError, match="more than 1") as caught:
        torch.nn.BatchNorm2d(4)(torch.ones(1, 4, 1, 1))
    assert explain(caught.value).startswith("a batch of one sample can't be normalized by BatchNorm: give two training")
    assert "hunter2" not in explain(MemoryError("https://me:hunter2@h"))


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("AF_UNIX path too long", "set TMPDIR to a shorter one, such as /tmp"),
        (
            "x.so: failed to map segment from shared object: the folder is mounted with noexec",
            "TORCHINDUCTOR_CACHE_DIR",
        ),
        ("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)", "--shm-size=2g"),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are "
            "out of shared memory. Please try to raise your shared memory limit.",
            "--shm-size=2g",
        ),
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", "take fewer workers"),
    ],
)
def test_what_a_machine_lacks_is_told_with_its_remedy_and_no_line_of_the_user_s(said, remedy):
    assert remedy in explain(RuntimeError(said))
    assert remedy in explain(RuntimeError(said), Path("train.py"), [test_the_worker_needs_only_its_core])
    assert ".py" not in explain(RuntimeError(said), Path("train.py"), [test_the_worker_needs_only_its_core])


def test_another_error_is_one_sentence_with_its_place():
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    sentence = explain(caught.value)
    assert sentence.startswith("ZeroDivisionError: division by zero")
    assert "test_worker_core.py, line" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("deaf", [False, True])
def test_a_child_is_ended_where_there_is_no_psutil(monkeypatch, deaf):
    monkeypatch.setitem(sys.modules, "psutil", None)
    heed = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" if deaf else ""
    child = subprocess.Popen([sys.executable, "-c", f"{heed}print('up', flush=True); input()"], **_PIPES)
    with child:
        assert child.stdout.readline() == "up\n"
        end_tree(child.pid, grace_s=0.3 if deaf else 60.0)
        child.stdin.close()
    assert -child.returncode in (9, 15)
    assert (child.returncode == -9) == deaf
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_closer_look_that_breaks_costs_a_run_nothing(monkeypatch, tmp_path):
    known = []

    def broken(*_):
        known.append(read_record(tmp_path / PARTIAL))
        raise OSError("no space left")

    monkeypatch.setattr("laptime.profiling.closer._profile", broken)
    monkeypatch.setattr(worker, "open_data", lambda spec: make_data(train=8, test=3))
    spec = make_spec(epochs=1, warmup_epochs=0, batch_size=8, check=False, profile="full")
    record = worker.run(spec, tmp_path)
    assert record.status == known[0].status == "done", record.error
    assert known[0].epochs == record.epochs
    assert (known[0].setup, known[0].machine) == (record.setup, record.machine)
    assert known[0].setup.loader
    assert "no space left" in record.notes[-1]
    bare = worker.run(spec.model_copy(update={"profile": "none"}), tmp_path / "bare")
    assert (bare.status, bare.setup) == ("done", None)  # times alone, as a gate wants them
    assert not (tmp_path / "bare" / PARTIAL).exists()


def test_unchecked_epochs_are_on_disk_before_the_check(monkeypatch, tmp_path):
    known = []

    def broken(*_):
        known.append(read_record(tmp_path / PARTIAL))
        raise ValueError("the check broke")

    monkeypatch.setattr(worker, "check_one_step", broken)
    monkeypatch.setattr(worker, "open_data", lambda spec: make_data(train=8, test=3))
    record = worker.run(make_spec(epochs=1, warmup_epochs=0, batch_size=8), tmp_path)
    assert record.status == known[0].status == "failed"
    assert len(known[0].epochs) == 1
    assert known[0].epochs == record.epochs
    assert "before its step was checked" in known[0].error
    assert "the check broke" in record.error


def test_a_step_that_has_no_room_is_compared_at_a_part_of_the_batch(monkeypatch, tmp_path):
    def full(spec, data, size, world):
        if size > 4:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(worker, "check_one_step", full)
    monkeypatch.setattr(worker, "open_data", lambda spec: make_data(train=8, test=3))
    record = worker.run(make_spec(epochs=1, warmup_epochs=0, batch_size=8, check=True), tmp_path)
    assert record.status == "done", record.error
    assert record.notes[-1] == "one step was compared at a batch of 4: for one of 8 there was no room"
