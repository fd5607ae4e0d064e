"""Two machines train one net: two network namespaces with a cable between them, each running what a pod runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.samples import write_folder

from laptime import worker
from laptime.ladder.data import fetch_data
from laptime.launchers.handover import hand_out
from laptime.launchers.manifest import command
from laptime.launchers.settings import Settings
from laptime.nodes import RENDEZVOUS_PORT
from laptime.places import Places
from laptime.records import read_record
from laptime.spec import OptimizationSpec, RunSpec

# Synchronized BatchNorm: then the ranks' trajectory is that of one process, up to rounding.
SPREAD = OptimizationSpec(name="ddp", options={"batchnorm": "sync", "tuned": True})
RESIDENT = OptimizationSpec(name="resident")


def refusal() -> str | None:
    """Why no network namespaces can be made here; None where they can."""
    if shutil.which("ip") is None:
        return "there is no ip (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"laptime{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"no network namespaces: {made.stderr.strip()}" if made.returncode else None


@dataclass
class Host:
    """A namespace with one end of the cable."""

    name: str
    address: str
    link: str

    def start(self, index: int, words: list[str], home: Path, log: Path) -> subprocess.Popen:
        own = {"JOB_COMPLETION_INDEX": str(index), "LAPTIME_HOME": str(home), "OMP_NUM_THREADS": "1"}
        links = {"GLOO_SOCKET_IFNAME": self.link, "NCCL_SOCKET_IFNAME": self.link}
        environment = {**os.environ, **own, **links, "LAPTIME_POD_IP": self.address}
        with log.open("w") as file:
            inside = ["ip", "netns", "exec", self.name, *words]
            return subprocess.Popen(inside, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=environment)

    def kill(self) -> None:
        """Kills all that runs on it, as a power cut would."""
        for pid in ip("netns", "pids", self.name).split():
            os.kill(int(pid), signal.SIGKILL)


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def hosts():
    reason = refusal()
    if reason:
        pytest.skip(reason)
    number = os.getpid()
    pair = [Host(f"laptime{number}{end}", f"10.213.7.{i}", f"lt{number}{end}") for i, end in ((1, "a"), (2, "b"))]
    with ExitStack() as made:
        for host in pair:
            ip("netns", "add", host.name)
            made.callback(ip, "netns", "del", host.name)
            made.callback(host.kill)
        ip("link", "add", pair[0].link, "type", "veth", "peer", "name", pair[1].link)
        for host in pair:
            ip("link", "set", host.link, "netns", host.name)
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.link)
            ip("-n", host.name, "link", "set", host.link, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield pair


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("hosts")
    return fetch_data("cifar", str(write_folder(root / "images", train=4, test=1, size=8)), Places(root / "home"))


def spec_of(data, **changes) -> RunSpec:
    fields = {"workload": "cifar", "variant": "cpu-ddp", "optimizations": (RESIDENT, SPREAD), "data": data, "ranks": 2}
    rest = {"batch_size": 12, "warmup_epochs": 0, "check": False, "timeout_s": 150, "epochs": 2}
    return RunSpec(**{**fields, **rest, **changes})


def words_of(store: Path, hosts: list[Host], host: Host) -> list[str]:
    """The Job's own command line: the endpoint's name and the pod's address are the host's, nobody is waited for."""
    settings = Settings(image="x", nodes="1:2", store=str(store), last_call_s=3)
    words = command(settings, "two", (1, 2))
    words[0] = sys.executable
    words[words.index("--endpoint") + 1] = f"{hosts[0].address}:{RENDEZVOUS_PORT}"
    words[words.index("--address") + 1] = host.address
    return words


def start_all(spec: RunSpec, hosts: list[Host], place: Path) -> list[subprocess.Popen]:
    hand_out(spec, str(place / "store"), "two")
    return [
        host.start(i, words_of(place / "store", hosts, host), place / f"home{i}", place / f"log{i}.txt")
        for i, host in enumerate(hosts)
    ]


def said(place: Path) -> str:
    return "\n".join(f"{p.name}: {p.read_text()[-1500:]}" for p in sorted(place.glob("log*.txt")))


def wait_for_a_checkpoint(pointer: Path) -> None:
    until = time.monotonic() + 100
    while not (pointer.is_file() and json.loads(pointer.read_text())["written"]) and time.monotonic() < until:
        time.sleep(0.05)


def test_two_hosts_train_what_one_process_trains(hosts, data, tmp_path):
    pods = start_all(spec_of(data), hosts, tmp_path)
    alone = worker.run(spec_of(data, ranks=1, optimizations=(RESIDENT,)), tmp_path / "alone")
    assert [pod.wait(120) for pod in pods] == [0, 0], said(tmp_path)
    record = read_record(tmp_path / "store" / "two" / "record.json")
    assert record.status == "done", record.error
    assert (record.ranks, record.restarts) == (2, 0)
    assert [(s.epoch, s.ranks, s.nodes) for s in record.starts] == [(0, 2, 2)]
    assert all(e.kept and e.samples == 12 and len(e.ranks_s) == 2 for e in record.epochs)
    for both, one in zip(record.epochs, alone.epochs, strict=True):
        assert both.train_loss == pytest.approx(one.train_loss, rel=2e-3)


def test_a_lost_host_is_gone_on_without_from_the_last_checkpoint(hosts, data, tmp_path):
    pods = start_all(spec_of(data, epochs=4), hosts, tmp_path)
    pointer = tmp_path / "store" / "two" / "checkpoints" / "latest.json"
    wait_for_a_checkpoint(pointer)
    hosts[1].kill()
    assert pods[1].wait(60) != 0
    assert pods[0].wait(120) == 0, said(tmp_path)
    record = read_record(tmp_path / "store" / "two" / "record.json")
    assert record.status == "done", record.error
    first, second = record.starts
    assert (first.epoch, first.ranks, first.nodes) == (0, 2, 2)
    assert (second.ranks, second.nodes, record.restarts) == (1, 1, 1)
    assert 1 <= second.epoch < 4
    assert [e.index for e in record.epochs] == list(range(4))
    assert [e.kept for e in record.epochs] == [e.index < second.epoch for e in record.epochs]
    assert [e.ranks for e in record.epochs] == [None if e.kept else 1 for e in record.epochs]
    assert [e.index for e in record.epochs if e.resumed] == [second.epoch]
    assert [e.index for e in record.epochs if e.interrupted] == [second.epoch - 1]
    assert all(e.samples == 12 for e in record.epochs)


@pytest.mark.long
def test_the_host_of_the_endpoint_is_waited_for(hosts, data, tmp_path):
    pods = start_all(spec_of(data, epochs=6), hosts, tmp_path)
    pointer = tmp_path / "store" / "two" / "checkpoints" / "latest.json"
    wait_for_a_checkpoint(pointer)
    hosts[0].kill()
    assert pods[0].wait(60) != 0
    words = words_of(tmp_path / "store", hosts, hosts[0])
    again = hosts[0].start(0, words, tmp_path / "home0", tmp_path / "log-again.txt")
    assert [again.wait(150), pods[1].wait(150)] == [0, 0], said(tmp_path)
    record = read_record(tmp_path / "store" / "two" / "record.json")
    assert record.status == "done", record.error
    assert record.restarts >= 1
    assert record.starts[-1].ranks == 2
    assert [e.index for e in record.epochs] == list(range(6))
