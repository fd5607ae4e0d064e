"""Samples of the machine: when they are taken, of what, and that nothing depends on one."""

import sys
from types import SimpleNamespace as Namespace

import psutil
import pytest
from tests.unit import test_devices as devices

from laptime.launchers.sampling import EVERY_S, FIRST_S, sampling
from laptime.records import SYSTEM, read_samples


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def one_sample(folder, device="cpu"):
    clock = Clock()
    with sampling(folder, device, clock) as sampler:
        clock.now += FIRST_S
        sampler.look()
    (sample,) = read_samples(folder / SYSTEM)
    return sample


def test_one_is_taken_where_the_last_is_long_enough_ago(tmp_path):
    clock = Clock()
    with sampling(tmp_path, "cpu", clock) as sampler:
        taken = []
        for now in (100.0, 100.9, 101.0, 105.9, 107.0, 111.9, 112.0):
            clock.now = now
            sampler.look()
            taken.append(len(read_samples(tmp_path / SYSTEM)))
    assert taken == [0, 0, 1, 1, 2, 2, 3]


def test_names_and_units_are_those_of_mlflow(tmp_path):
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    theirs = {}
    for monitor in (CPUMonitor(), DiskMonitor(), NetworkMonitor()):
        monitor.collect_metrics()
        theirs |= monitor.aggregate_metrics()
    ours = one_sample(tmp_path).values
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"cpu_utilization_percentage", "network_receive_megabytes", "network_transmit_megabytes"}:
        assert ours[name] == pytest.approx(theirs[name], rel=0.5), name
    assert 0 <= ours["cpu_utilization_percentage"] <= 100
    assert ours["network_receive_megabytes"] >= 0


def test_what_an_earlier_process_left_is_gone(tmp_path):
    first = one_sample(tmp_path)
    assert one_sample(tmp_path).at > first.at


# A sandbox hides files of /proc, or gives lines of another form.
@pytest.mark.parametrize(
    ("asked", "error", "lost"),
    [
        ("disk_usage", PermissionError, "disk"),
        ("net_io_counters", FileNotFoundError, "network"),
        ("cpu_percent", PermissionError, "cpu"),
        ("virtual_memory", KeyError, "cpu"),
    ],
)
def test_a_gauge_that_fails_leaves_the_others(tmp_path, monkeypatch, asked, error, lost):
    def fail(*_):
        raise error("no")

    monkeypatch.setattr(psutil, asked, fail)
    names = {name.partition("_")[0] for name in one_sample(tmp_path).values}
    assert names == {"cpu", "system", "disk", "network"} - ({"cpu", "system"} if lost == "cpu" else {lost})


def test_a_container_without_a_network_has_no_network_s_values(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "net_io_counters", lambda: None)
    names = one_sample(tmp_path).values.keys()
    assert names
    assert not any(name.startswith("network") for name in names)


def test_a_sample_that_can_t_be_written_is_lost_alone(tmp_path):
    clock = Clock()
    (tmp_path / SYSTEM).mkdir()
    with sampling(tmp_path, "cpu", clock) as sampler:
        clock.now += EVERY_S
        sampler.look()
        assert read_samples(tmp_path / SYSTEM) == ()
        (tmp_path / SYSTEM).rmdir()
        clock.now += EVERY_S
        sampler.look()
    assert len(read_samples(tmp_path / SYSTEM)) == 1


def test_without_psutil_there_are_no_values(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert one_sample(tmp_path).values == {}


class Driver(devices.Driver):
    """Three GPUs, the last a slice that tells neither its load nor its power; not a driver's answers, but its form."""

    closed = False

    def __getattr__(self, name):
        answers = {
            "nvmlDeviceGetCount": lambda: 3,
            "nvmlDeviceGetUtilizationRates": lambda handle: Namespace(gpu=self.told(handle, [40, 97, None])),
            "nvmlDeviceGetMemoryInfo": lambda handle: Namespace(used=36e9, total=144e9),
            "nvmlDeviceGetPowerUsage": lambda handle: self.told(handle, [100_000, 350_000, None]),
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        }
        return answers.get(name) or super().__getattr__(name)

    def told(self, handle, values):
        if self.closed or values[int(handle[-1])] is None:
            raise self.NVMLError("not supported")
        return values[int(handle[-1])]

    def nvmlShutdown(self):  # noqa: N802
        self.closed = True

    def nvmlInit(self):  # noqa: N802
        self.closed = False


def test_gpus_are_those_that_cuda_sees_in_its_order(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Driver("pynvml"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    values = {name: value for name, value in one_sample(tmp_path, "cuda").values.items() if name.startswith("gpu")}
    assert values == {
        "gpu_0_utilization_percentage": 97,
        "gpu_0_memory_usage_megabytes": 36_000,
        "gpu_0_memory_usage_percentage": 25,
        "gpu_0_power_usage_watts": 350,
        "gpu_0_power_usage_percentage": 50,
        "gpu_1_memory_usage_megabytes": 36_000,
        "gpu_1_memory_usage_percentage": 25,
    }


def test_a_gpu_that_is_lost_or_has_no_limit_leaves_the_others(tmp_path, monkeypatch):
    driver = Driver("pynvml")

    def handle(uuid):
        if uuid == "GPU-0":
            raise driver.NVMLError("GPU is lost")
        return uuid

    driver.nvmlDeviceGetHandleByUUID = handle
    driver.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 0
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    names = {name for name in one_sample(tmp_path, "cuda").values if name.startswith("gpu")}
    assert {name[:5] for name in names} == {"gpu_1", "gpu_2"}
    assert "gpu_1_utilization_percentage" in names
    assert not any("power" in name for name in names)


def test_a_gpu_s_names_are_those_of_mlflow(tmp_path, monkeypatch):
    from mlflow.system_metrics.metrics import gpu_monitor

    driver = Driver("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(gpu_monitor, "pynvml", driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    ours = {name: value for name, value in one_sample(tmp_path, "cuda").values.items() if name.startswith("gpu")}
    monitor = gpu_monitor.GPUMonitor()
    monitor.collect_metrics()
    assert {name: round(value, 1) for name, value in ours.items()} == monitor.aggregate_metrics()


def test_a_training_on_a_cpu_asks_no_driver(tmp_path, monkeypatch):
    monkeypatch.setattr("laptime.launchers.sampling.visible_gpus", lambda: pytest.fail("a driver was asked"))
    assert one_sample(tmp_path).values
