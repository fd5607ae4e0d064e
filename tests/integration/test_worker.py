"""The worker through its launchers, for real: records, failures, ends. Small nets on small data, in real processes."""

import contextlib
import json
import signal
import threading
import time

import psutil
import pytest
from tests.samples import write_folder

from laptime.devices import hopeless_here
from laptime.ladder.data import fetch_data
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.launchers.process import child
from laptime.places import Places
from laptime.records import PARTIAL, read_record
from laptime.spec import OptimizationSpec, RunSpec
from laptime.variants import resolve


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("worker")
    return fetch_data("cifar", str(write_folder(root / "images")), Places(root / "home"))


def spec_of(data, variant="cpu-optimized", **changes) -> RunSpec:
    chosen = resolve(variant).optimizations
    emulated = hopeless_here(variant, [o.name for o in chosen], "cpu")  # a check in bf16 would take minutes
    fields = {
        "workload": "cifar",
        "variant": variant,
        "optimizations": [o for o in chosen if o.name not in emulated],
        "data": data,
        "epochs": 2,
        "timeout_s": 300,
    }
    return RunSpec(**{**fields, **changes})


def test_a_run_leaves_a_whole_record_and_its_artifacts(data, tmp_path):
    lines, events = [], []
    spec = spec_of(data, save_model=True, limit_train=100)
    record = launch("process", spec, tmp_path / "run", Hooks(lines.append, events.append))
    assert record.status == "done", record.error
    assert read_record(tmp_path / "run" / "record.json") == record
    assert [e.index for e in record.kept] == [0, 1]
    assert all(e.samples == 100 and e.epoch_s > 0 for e in record.kept)
    assert record.check.passed
    assert record.check.klass == ("numeric" if "bf16" in {o.name for o in spec.optimizations} else "exact")
    # What others on the machine take between two marks is in no part: the quieter epoch is looked at.
    assert min(abs(sum(e.parts_s.values()) / e.epoch_s - 1) for e in record.kept) <= 0.02
    for epoch in record.kept:
        assert sum(epoch.parts_s.values()) <= epoch.epoch_s * 1.02
        assert set(epoch.parts_s) >= {"data", "forward", "backward", "optimizer"}
        assert epoch.breakdown.steps == max(1, epoch.steps - 1)
        assert epoch.breakdown.mean_ms.keys() == epoch.parts_s.keys()
    assert record.peak_memory_mib > 100
    assert record.removed_parameters == 6_946_816
    assert record.flops_per_sample > 1e8
    assert record.machine.fingerprint
    assert [i.batch_size for i in record.inference] == [1], "thirty test images are no batch of 32"
    assert all(i.samples_per_s > 0 and i.pass_ms.median > 0 for i in record.inference)
    assert record.profile is None
    assert not (tmp_path / "run" / "profile").exists()
    left = ("spec.json", "log.txt", "samples.png", "model_summary.txt", "model.pt", "progress.jsonl", "system.jsonl")
    for name in left:
        assert (tmp_path / "run" / name).stat().st_size > 0
    assert [e["event"] for e in events if e["event"] == "epoch"] == ["epoch", "epoch"]
    assert any("epoch 1" in line for line in lines)


def test_a_killed_run_goes_on_from_its_checkpoint(data, tmp_path):
    def kill(event):
        if event["event"] == "epoch":
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if str(tmp_path) in " ".join(process.cmdline()):
                        process.kill()

    small = {"epochs": 6, "limit_train": 32, "limit_test": 6, "check": False, "warmup_steps": 1}
    spec = spec_of(data, "cpu-resident", checkpoints=str(tmp_path / "kept"), **small)
    broken = launch("process", spec, tmp_path / "first", Hooks(on_event=kill))
    assert broken.status == "failed"
    assert "killed" in broken.error
    record = launch("process", spec, tmp_path / "second", Hooks())
    assert record.status == "done", record.error
    assert [e.index for e in record.kept] == list(range(6))
    assert record.restarts == 1
    assert [e.index for e in record.epochs if e.resumed] == [record.starts[1].epoch]
    assert record.starts[1].epoch >= 1
    assert "from its last checkpoint" in record.cautions[0]


def test_the_profile_stands_beside_a_run(data, tmp_path):
    asked = {"profile": "full", "profile_schedule": "0,1,2,1", "ceilings": {"gemm_fp32_gflops": 1e-3, "copy_gb_s": 9.0}}
    small = {"variant": "cpu-resident", "epochs": 1, "limit_train": 64, "limit_test": 10, "check": False}
    record = launch("process", spec_of(data, **small, **asked), tmp_path / "run", Hooks())
    assert record.status == "done", record.error
    assert record.setup.loader == "resident"
    assert (record.profile.schedule, record.profile.steps) == ("0,1,2,1", 2)
    assert record.profile.mfu > 1
    assert "ceiling underestimated" in record.profile.notes
    assert record.machine.ceilings.gemm_fp32_gflops == 1e-3
    assert record.profile.layout.nchw_ms > 0
    assert 0 < record.profile.layout.share <= 1
    assert record.profile.updates.own_ms > 0
    assert record.profile.updates.fused_ms > 0
    written = {p.name for p in (tmp_path / "run" / "profile").iterdir()}
    tables = {"self_cpu_time.txt", "total_cpu_time.txt", "by_input_shape.txt", "memory.txt", "inference.txt"}
    assert written >= tables | {"trace.json.gz", "trace_stacks.json.gz"}
    assert not [name for name in written if name.endswith((".part", ".json")) and name != "breakdown.json"]
    assert "profiler_start" not in (tmp_path / "run" / "log.txt").read_text()


def test_the_saved_model_is_the_plain_one_and_predicts_the_same(data, tmp_path):
    import torch
    from torchvision.models import resnet18

    from laptime.data.tensors import open_tensors

    record = launch("process", spec_of(data, save_model=True, epochs=3), tmp_path / "run", Hooks())
    model = resnet18(num_classes=3)
    model.load_state_dict(torch.load(tmp_path / "run" / "model.pt", weights_only=True))
    whole = open_tensors(data)
    scaled = whole.test.images.permute(0, 3, 1, 2).float() / 255
    images = (scaled - torch.tensor(whole.mean).view(3, 1, 1)) / torch.tensor(whole.std).view(3, 1, 1)
    hits = (model.eval()(images).argmax(1) == whole.test.labels).float().mean()
    # Trained in bf16 and read in fp32: at most one of the thirty test images may fall otherwise.
    assert float(hits) == pytest.approx(record.kept[-1].test_accuracy, abs=0.04)


def test_inline_gives_the_same_losses_as_a_process(data, tmp_path):
    spec = spec_of(data, "cpu-resident", epochs=1, limit_train=64, check=False)
    heard = {"process": [], "inline": []}
    records = [launch(n, spec, tmp_path / "run", Hooks(on_event=told.append)) for n, told in heard.items()][::-1]
    assert [e["event"] for e in heard["inline"]].count("epoch") == spec.epochs, "not those of the process once more"
    assert not (tmp_path / "run" / "system.jsonl").exists(), "of the process; nobody samples inline"
    assert records[0].status == records[1].status == "done"
    assert records[0].inference == records[1].inference == (), "neither checked nor profiled"
    assert records[0].kept[0].train_loss == pytest.approx(records[1].kept[0].train_loss, rel=1e-4)


def test_not_a_number_becomes_a_failed_run(data, tmp_path):
    record = launch(
        "process", spec_of(data, "cpu-resident", learning_rate=1e30, check=False), tmp_path / "run", Hooks()
    )
    assert record.status == "failed"
    assert "loss became" in record.error
    assert "--weights" in record.error
    assert "epoch" in record.error


def test_a_crash_becomes_a_failed_run_with_its_log(data, tmp_path):
    broken = data.model_copy(update={"path": str(tmp_path / "gone")})
    record = launch("process", spec_of(broken), tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert "gone" in record.error
    assert read_record(tmp_path / "run" / "record.json").status == "failed"


def test_a_hang_is_ended_at_its_timeout(data, tmp_path):
    record = launch("process", spec_of(data, timeout_s=0.5), tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert "time-out of 0.5 s" in record.error
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]


def test_a_killed_worker_is_explained(data, tmp_path):
    def kill(event):
        if event["event"] == "step":
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):  # a second event may come after its end
                    if str(tmp_path) in " ".join(process.cmdline()):
                        process.send_signal(signal.SIGKILL)

    record = launch("process", spec_of(data, "cpu-baseline", epochs=50), tmp_path / "run", Hooks(on_event=kill))
    assert record.status == "failed"
    assert "memory" in record.error


def test_an_exception_in_the_caller_ends_the_worker(data, tmp_path):
    def stop(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch("process", spec_of(data, "cpu-baseline", epochs=50), tmp_path / "run", Hooks(on_event=stop))
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]


def test_an_unknown_optimization_in_a_spec_is_told(data, tmp_path):
    spec = spec_of(data, optimizations=(OptimizationSpec(name="bf17"),))
    record = launch("process", spec, tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert "bf16" in record.error


def test_cuda_without_a_gpu_is_told(data, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    record = launch("process", spec_of(data, device="cuda"), tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert "--device cpu" in record.error


def test_a_spec_of_another_version_ends_with_2(data, tmp_path):
    fields = spec_of(data).model_dump(mode="json", by_alias=True) | {"schema": "laptime.spec/7"}
    (tmp_path / "spec.json").write_text(json.dumps(fields))
    lines: list[str] = []
    with child(["laptime.worker", str(tmp_path / "spec.json"), str(tmp_path / "record.json")]) as (process, output):
        with output:
            lines = output.read().splitlines()
        assert process.wait() == 2
    assert len(lines) == 1
    assert "laptime.spec/7" in lines[0]
    assert not (tmp_path / "record.json").exists()


def test_threads_of_a_launch_are_gone(data, tmp_path):
    before = set(threading.enumerate())
    launch("process", spec_of(data, "cpu-resident", epochs=1, check=False), tmp_path / "run", Hooks())
    assert set(threading.enumerate()) <= before


def test_a_worker_that_is_killed_in_its_profile_keeps_its_epochs(data, tmp_path):
    def kill(event):
        if event.get("phase") == "profile":
            until = time.monotonic() + 120
            while not (tmp_path / "run" / PARTIAL).is_file() and time.monotonic() < until:
                time.sleep(0.01)
            mine = [p for p in psutil.Process().children(recursive=True) if str(tmp_path) in " ".join(p.cmdline())]
            assert mine
            for process in mine:
                process.send_signal(signal.SIGKILL)

    small = {"epochs": 1, "warmup_epochs": 0, "limit_train": 32, "limit_test": 10, "check": False}
    spec = spec_of(data, "cpu-resident", profile="full", profile_schedule="0,1,100,1", **small)
    record = launch("process", spec, tmp_path / "run", Hooks(on_event=kill))
    assert record.status == "done", record.error
    assert len(record.kept) == 1
    assert record.setup.loader == "resident"
    assert record.profile is None
    assert "signal 9" in record.notes[-1]
    assert read_record(tmp_path / "run" / "record.json") == record
    assert not (tmp_path / "run" / PARTIAL).exists()
