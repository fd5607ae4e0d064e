"""Which GPUs a process means, and what they lack; decided without one."""

import os
import sys
import types
from pathlib import Path

import pytest
import torch

from laptime.devices import device_count, hopeless_here, lock_name
from laptime.gate.validity import Watch
from laptime.host.gpus import Gpu, chosen, gpus_by_files, others_on
from laptime.measure.memory import cautions_of_others, in_use
from laptime.preflight.probe import lacks
from laptime.world import ALONE

GPUS = (Gpu("GPU-aa11", "first"), Gpu("GPU-bb22", "second"), Gpu("GPU-bb33", "third"))


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["first", "second", "third"]),
        ("1", ["second"]),
        ("2,0", ["third", "first"]),
        ("GPU-aa", ["first"]),
        ("GPU-bb22,GPU-aa", ["second", "first"]),
        ("GPU-bb22,0", ["second"]),
        ("GPU-bb", []),
        ("0,7,1", ["first"]),
        ("1,0,1", []),
        ("GPU-bb22,GPU-bb2", []),
        ("2,GPU-aa", ["third"]),
        ("", []),
        ("-1", []),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_would_show(visible, names):
    assert [g.name for g in chosen(GPUS, visible)] == names


def test_the_cpu_is_locked_by_its_name_and_nobody_is_asked_about_it():
    assert lock_name("cpu") == "cpu"
    assert others_on("cpu") == ()


def process(pid, memory):
    return types.SimpleNamespace(pid=pid, usedGpuMemory=memory)


# By GPU: this process itself, and two others of which the driver may not tell all.
RUNNING = {
    "GPU-0": [process(os.getpid(), 2**30), process(4321, 3 * 2**30), process(77, None)],
    "GPU-1": [],
}


class Driver(types.ModuleType):
    """Two GPUs, of which the second is hot and the first in use; not a driver's answers, but its form."""

    class NVMLError(Exception):
        pass

    def __getattr__(self, name):
        answers = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda i: f"GPU-{i}",
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetUUID": lambda handle: handle,
            "nvmlDeviceGetName": lambda handle: "H200",
            "nvmlDeviceGetComputeRunningProcesses": RUNNING.get,
            "nvmlDeviceGetMigMode": lambda handle: [0, 0],
            "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 0,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": self.whole,
            "nvmlSystemGetProcessName": self.name_of,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: {"GPU-0": 0x04, "GPU-1": 0x04 | 0x20}[handle],
        }
        return answers.get(name, lambda: None)

    def whole(self, handle):
        raise self.NVMLError("Invalid Argument")

    def name_of(self, pid):
        if pid == 77:
            raise self.NVMLError("not found")
        return b"/usr/bin/python3"


def test_each_other_process_on_a_gpu_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Driver("pynvml"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert others_on("cuda") == (
        "H200 was in use by another process at the start: /usr/bin/python3 (process 4321, 3,072 MiB)",
        "H200 was in use by another process at the start: unknown (process 77, unknown memory)",
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert others_on("cuda") == ()
    assert len(others_on("cuda", ranks=2)) == 2


def test_without_the_library_memory_that_others_hold_is_said(monkeypatch):
    whole = 80 * 2**30
    assert in_use("H200", whole - 600 * 2**20, whole) == ()
    (said,) = in_use("H200", whole - 5 * 2**30, whole)
    assert said == "H200 was in use by another process at the start: 5,120 MiB of its memory were taken"
    assert cautions_of_others(torch.device("cpu"), ALONE) == ()


def test_without_the_library_gpus_are_counted_by_their_files(monkeypatch, tmp_path):
    def write(name, text=""):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for number, uuid in enumerate(("GPU-aa11", "GPU-bb22")):
        told = f"Model: \t\t H200\nIRQ:   \t\t 7\nGPU UUID: \t {uuid}\n"
        write(f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information", told)
    assert gpus_by_files(tmp_path) == ()  # as in a container that was given none
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        write(f"dev/{name}")
    assert gpus_by_files(tmp_path) == (Gpu("GPU-aa11", "H200"), Gpu("GPU-bb22", "H200"))
    write("dev/nvidia10")
    found = gpus_by_files(tmp_path)
    assert [g.name for g in found] == ["nvidia0", "nvidia1", "nvidia10"]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("laptime.devices.gpus_by_files", lambda: found)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device_count("cuda") == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert device_count("cuda") == 2


@pytest.mark.parametrize(("visible", "slow"), [("0", False), ("1", True), ("1,0", True), ("7", False)])
def test_another_gpu_s_heat_is_no_matter(visible, slow, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Driver("pynvml"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    watch = Watch("cuda")
    watch.sample()
    assert ("the GPU was slowed down by heat or power" in watch.flags()) is slow


def test_a_gate_on_a_cpu_asks_no_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it fails
    monkeypatch.setattr("laptime.host.gpus.open_nvml", lambda: pytest.fail("a driver was asked"))
    watch = Watch("cpu")
    watch.sample()
    assert (watch.foreign, watch.hot) == (False, False)


def test_an_old_gpu_lacks_formats_with_its_reason():
    assert set(lacks("T4", (7, 5))) == {"bf16", "tf32"}
    assert "T4 has compute capability 7.5" in lacks("T4", (7, 5))["bf16"]
    assert set(lacks("P100", (6, 0))) == {"bf16", "fp16", "tf32"}
    assert lacks("H200", (9, 0)) == {}


@pytest.mark.parametrize(
    ("flags", "variant", "device", "away"),
    [
        ("flags\t: fpu avx2 fma", "cpu-optimized", "cpu", ("bf16",)),
        ("flags\t: fpu avx2 fma", "cpu-optimized", "cuda", ()),
        ("flags\t: fpu avx2 fma", "cpu-baseline+bf16+products", "cpu", ()),
        ("flags\t: fpu avx2 avx512f", "cpu-optimized", "cpu", ()),
        ("flags\t: fpu avx2 avx_ne_convert", "cpu-optimized", "cpu", ()),
        ("Features\t: fp asimd", "cpu-optimized", "cpu", ("bf16",)),
        ("Features\t: fp asimd bf16", "cpu-optimized", "cpu", ()),
        ("processor\t: 0", "cpu-optimized", "cpu", ()),
    ],
)
def test_what_a_name_stands_for_holds_no_bf16_where_a_cpu_would_emulate_it(monkeypatch, flags, variant, device, away):
    """By the flags that Linux reports; where it reports none that are known, nobody knows."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: flags)
    assert hopeless_here(variant, ["resident", "bf16"], device) == away
    assert hopeless_here(variant, ["resident"], device) == ()
    unread = Gpu("GPU-????????", "H200")  # as the driver writes it before CUDA has begun
    assert chosen((unread, unread), "0,1") == (unread, unread)
