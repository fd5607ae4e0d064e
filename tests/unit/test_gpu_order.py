"""Which GPU `cuda` means where the driver's library and CUDA disagree: GPUs of several kinds, slices, closed ones."""

import shutil
import subprocess
import sys
import types

import pytest

from laptime.cli.doctor import told_of_cuda
from laptime.devices import choose_device, lock_names
from laptime.errors import UsageError
from laptime.host.gpus import Gpu, slowed_down, visible_gpus

OLD, NEW = "GPU-00000000-0000-0000-0000-0000000000aa", "GPU-00000000-0000-0000-0000-0000000000bb"
SLICE = "MIG-5c1f8a0e-7b5d-5c0e-9a4e-0d6a5b3c2f11"
DIVIDED = "GPU-00000000-0000-0000-0000-0000000000cc"
EMPTY = "GPU-00000000-0000-0000-0000-0000000000dd"
NAMES = {OLD: "GT 1030", NEW: "RTX 4090", DIVIDED: "H200", EMPTY: "H200", SLICE: "H200 MIG 1g.18gb"}

# A driver that shows the GPUs whose last bytes CUDA_VISIBLE_DEVICES names in hexadecimal, the faster one first; or the
# slice that SHOWN names, none where that is empty.
CUDA = """
#include <stdlib.h>
#include <string.h>
static const char *shown(void) { const char *s = getenv("CUDA_VISIBLE_DEVICES"); return s ? s : "bbaa"; }
int cuInit(unsigned flags) { return 0; }
static const char *slice(void) { return getenv("SHOWN"); }
int cuDeviceGetCount(int *n) { *n = slice() ? *slice() != 0 : strlen(shown()) / 2; return 0; }
int cuDeviceGet(int *device, int n) { *device = n; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  if (slice()) {
    const char *s = slice() + 4;
    for (int i = 0; i < 16; i++, s += 2) {
      s += *s == '-';
      char digits[3] = {s[0], s[1], 0};
      uuid[i] = strtol(digits, NULL, 16);
    }
    return 0;
  }
  char digits[3] = {shown()[2 * device], shown()[2 * device + 1], 0};
  memset(uuid, 0, 16);
  uuid[15] = strtol(digits, NULL, 16);
  return 0;
}
"""


class Driver(types.ModuleType):
    """NVML's form: GPUs by their place on the bus, of which None can't be opened."""

    class NVMLError(Exception):
        pass

    def __init__(self, *on_bus: str | None) -> None:
        super().__init__("pynvml")
        self.on_bus = on_bus
        self.nvmlInit = self.nvmlShutdown = lambda: None
        self.nvmlDeviceGetCount = lambda: len(on_bus)
        self.nvmlDeviceGetUUID = lambda handle: handle
        self.nvmlDeviceGetName = NAMES.get

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802 - NVML's name
        if self.on_bus[index] is None:
            raise self.NVMLError("Insufficient Permissions")
        return self.on_bus[index]

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802 - NVML's name
        if handle == OLD:
            raise self.NVMLError("Not Supported")
        return [int(handle in (DIVIDED, EMPTY))] * 2  # now, and after the next reset

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):  # noqa: N802 - NVML's name
        if handle == OLD:
            raise self.NVMLError("Not Supported")
        return 7 if handle in (DIVIDED, EMPTY) else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):  # noqa: N802 - NVML's name
        if (handle, index) != (DIVIDED, 2):
            raise self.NVMLError("Not Found")
        return SLICE

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):  # noqa: N802 - NVML's name
        if handle != SLICE:
            raise self.NVMLError("Invalid Argument")
        return DIVIDED

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802 - NVML's name
        if handle == SLICE:
            raise self.NVMLError("Not Supported")
        return 0x20

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802 - NVML's name
        if uuid not in NAMES:
            raise self.NVMLError("Not Found")
        return uuid


@pytest.fixture
def on_bus(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return lambda *gpus: monkeypatch.setitem(sys.modules, "pynvml", Driver(*gpus))


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    if sys.platform != "linux" or not shutil.which("gcc"):
        pytest.skip("for Linux with a compiler")
    (tmp_path / "cuda.c").write_text(CUDA)
    command = ["gcc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    # What is remembered is of this driver from here on.
    monkeypatch.setattr("laptime.host.gpus._asked", sys.modules["laptime.host.gpus"]._asked.__wrapped__)


def test_of_several_kinds_the_first_is_cudas(on_bus, cuda, monkeypatch):
    on_bus(OLD, NEW)
    assert [gpu.name for gpu in visible_gpus()] == ["RTX 4090", "GT 1030"]
    assert lock_names("cuda", ranks=1) == (NEW,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "aa")
    assert [gpu.name for gpu in visible_gpus()] == ["GT 1030"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert [gpu.name for gpu in visible_gpus()] == ["GT 1030", "RTX 4090"]


def test_where_cuda_does_not_answer_the_bus_decides(on_bus, cuda, monkeypatch, tmp_path):
    on_bus(OLD, NEW)
    (tmp_path / "libcuda.so.1").write_text("no library")
    assert [gpu.name for gpu in visible_gpus()] == ["GT 1030", "RTX 4090"]


def test_of_one_kind_cuda_is_not_asked(on_bus, monkeypatch):
    on_bus(NEW, NEW)
    monkeypatch.setattr("laptime.host.gpus.cuda_uuids", lambda: pytest.fail("CUDA was asked"))
    assert len(visible_gpus()) == 2


def test_a_slice_is_a_gpu_of_its_own_and_none_comes_behind_it(on_bus, monkeypatch):
    on_bus(NEW)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{SLICE},{NEW}")
    assert visible_gpus() == (Gpu(SLICE, NAMES[SLICE]),)
    assert lock_names("cuda", ranks=1) == (SLICE,)
    assert choose_device("auto") == "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-gone")
    assert visible_gpus() == ()
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES='MIG-gone' names none"):
        choose_device("cuda")


@pytest.mark.parametrize("visible", [None, "0", DIVIDED, SLICE, "1,0"])
def test_a_divided_gpu_is_its_first_slice_whatever_it_is_called(on_bus, monkeypatch, visible):
    on_bus(DIVIDED, OLD)
    monkeypatch.setattr("laptime.host.gpus.cuda_uuids", tuple)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == (Gpu(SLICE, NAMES[SLICE]),)
    assert lock_names("cuda", ranks=1) == (SLICE,)


def test_a_gpu_in_mig_mode_without_a_slice_is_none(on_bus, monkeypatch):
    on_bus(EMPTY)
    assert visible_gpus() == ()
    assert choose_device("auto") == "cpu"
    with pytest.raises(UsageError, match=r"the H200 is in MIG mode and this user has no instance of it: make one "):
        choose_device("cuda")
    on_bus(EMPTY, NEW)
    monkeypatch.setattr("laptime.host.gpus.cuda_uuids", tuple)
    assert visible_gpus() == (Gpu(NEW, NAMES[NEW]),)


def test_a_slice_that_nvml_does_not_know_by_its_name_is_the_one_that_cuda_shows(on_bus, cuda, monkeypatch):
    on_bus(DIVIDED)
    # GPU, instance and compute instance, as drivers before 470 had it: whether CUDA takes it is the driver's affair.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"MIG-{DIVIDED}/1/0")
    monkeypatch.setenv("SHOWN", SLICE)
    assert visible_gpus() == (Gpu(SLICE, NAMES[SLICE]),)
    assert lock_names("cuda", ranks=1) == (SLICE,)
    monkeypatch.setenv("SHOWN", "")
    assert visible_gpus() == ()


def test_one_beside_a_divided_gpu_is_whole(on_bus, monkeypatch):
    on_bus(DIVIDED, NEW)
    monkeypatch.setattr("laptime.host.gpus.cuda_uuids", tuple)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert lock_names("cuda", ranks=1) == (NEW,)


def test_a_slice_is_as_hot_as_its_gpu(on_bus):
    on_bus(DIVIDED)
    assert slowed_down(Gpu(SLICE, NAMES[SLICE]))


def test_a_gpu_that_can_not_be_opened_is_passed_over(on_bus):
    on_bus(None, NEW)
    assert visible_gpus() == (Gpu(NEW, NAMES[NEW]),)


def test_the_doctor_says_why_it_has_no_gpu_of_one_in_mig_mode():
    assert told_of_cuda((), None, ("H200",)).startswith("the H200 is in MIG mode and this user has no instance of it: ")


@pytest.mark.parametrize(
    ("gpus", "version", "said"),
    [
        ((), None, "no NVIDIA driver answers: CPU variants only"),
        (("H200", "H200"), "13.0", "H200, H200"),
        (("H200",), None, "torch can't use H200: install a torch and a driver that fit together"),
    ],
)
def test_the_doctor_says_whether_torch_can_use_the_gpus(gpus, version, said):
    assert told_of_cuda(gpus, version) == said
