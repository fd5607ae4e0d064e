"""What is disturbed: laptime's own commands, short and real, and the processes that belong to each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from stage import Stage

# Inherited by everything that a job starts, whatever it is called and whoever adopts it.
MARK = "LAPTIME_CHAOS"
_MODULES = {
    "laptime.worker": "worker",
    "laptime.ranks": "launcher",
    "laptime.data": "data",
    "laptime.preflight.probe": "probe",
    "laptime.preflight.inspecting": "look",
    "laptime.predict.logged_model": "model",
    "laptime": "side",  # of a gate, each of which is a command of its own
}
TRAINING = ("worker", "rank", "launcher", "loader", "side", "keeper")
_SHORT = ("--epochs", "3", "--warmup-epochs", "1", "--no-profile", "--timeout", "120")
_GATE = ("--variant", "cpu-baseline", "--epochs", "2", "--max-pairs", "4", "--budget", "60s", "--timeout", "120")


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    Attributes:
        arguments: of laptime, with `{}` for the job's folder.
        roles: its processes that may be hit.
        ladder: whether it is one, which goes on with --resume.
        home: the stores that it uses.
        weight: how often it is taken.
        fair: exit codes that are right whatever happens to it, beside those of the fault.
    """

    name: str
    arguments: tuple[str, ...]
    roles: tuple[str, ...]
    ladder: bool = False
    home: str = "home"
    weight: int = 1
    fair: tuple[int, ...] = ()

    @property
    def tracked(self) -> bool:
        """Whether it sends anything to MLflow."""
        return self.ladder or self.name in ("gate", "run")


def kinds(stage: Stage) -> list[Kind]:
    """The jobs that there are here."""
    own, images, folder = stage.workload, str(stage.folder / "images"), str(stage.folder)
    small = ("optimize", own, *_SHORT, "--repeats", "1", "--out", "{}", "--variants")
    cifar = ("optimize", "cifar", "--data", images, *_SHORT, "--repeats", "1", "--out", "{}")
    found = [
        Kind("ladder", (*small, "cpu-baseline,cpu-resident"), ("command", "look", "probe", "worker"), True, weight=4),
        Kind(
            "ranks",
            (*small, "cpu-baseline,cpu-ddp-plain", "--launcher", "auto"),
            ("command", "worker", "launcher", "rank"),
            True,
            weight=3,
        ),
        Kind(
            "cifar",
            (*cifar, "--variants", "cpu-baseline+workers,cpu-resident"),
            ("command", "data", "probe", "worker", "loader", "model"),
            True,
        ),
        Kind(
            "run",
            ("run", own, "--variant", "cpu-baseline", *_SHORT, "--out", "{}", "--checkpoints", "{}/checkpoints"),
            ("command", "look", "worker"),
            weight=2,
        ),
        # Head is base, so that any verdict but a usage error and lost quality may come of it, whoever is hit.
        Kind(
            "gate",
            ("gate", Path(own).name, *_GATE, "--base-dir", folder, "--head-dir", folder, "--json", "{}/gate.json"),
            ("command", "keeper", "side", "look", "worker"),
            weight=2,
            fair=(0, 1, 3, 4, 5),
        ),
    ]
    if stage.s3 is not None:
        fetch = ("data", "fetch", "cifar", "--data", stage.mirror)
        found.append(Kind("fetch", fetch, ("command", "data"), home="mirrored", weight=2))
    return found


@dataclass(frozen=True)
class Found:
    """A process of a job."""

    pid: int
    role: str


@dataclass
class Job:
    """A command on its way.

    Attributes:
        out: its folder.
        log: what it prints.
        given: the arguments of laptime.
    """

    kind: Kind
    stage: Stage
    out: Path
    given: list[str]
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0

    @property
    def log(self) -> Path:
        """What the command prints; not on the disk that is filled."""
        return self.stage.folder / "logs" / f"{self.out.name}.txt"

    @property
    def pid(self) -> int:
        """The command's process id, which is its group's, too."""
        assert self.process is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self.process.poll() if self.process else None

    def start(self) -> None:
        """Starts it in a session of its own: a terminal's Ctrl-C reaches it, and not us."""
        self.log.parent.mkdir(exist_ok=True)
        environment = self.stage.environment(self.kind.home) | {MARK: self.mark}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "laptime", *self.given],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started = time.monotonic()

    def processes(self) -> list[Found]:
        """Everything alive that carries the job's mark."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for place in Path("/proc").iterdir():
            if not place.name.isdigit():
                continue
            with contextlib.suppress(OSError):  # it ended meanwhile, or it is another user's
                if wanted in (place / "environ").read_bytes().split(b"\0") and not _ended(place):
                    found.append(Found(int(place.name), self._role(place)))
        return found

    def _role(self, place: Path) -> str:
        if int(place.name) == self.pid:
            return "command"
        role = _role_of(place)
        if role == "worker":
            above = _role_of(Path("/proc") / _parent(place))
            return {"launcher": "rank", "worker": "loader"}.get(above, "worker")
        return role

    def end(self) -> None:
        """Ends whatever is left, at once."""
        for found in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()


def _role_of(place: Path) -> str:
    words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if any("laptime.host.keeper" in word for word in words):
        return "keeper"
    return next((role for module, role in _MODULES.items() if module in words), "other")


def _ended(place: Path) -> bool:
    """Whether a process is a zombie: it holds nothing any more but its number."""
    return _fields(place)[0] in "ZX"


def _parent(place: Path) -> str:
    return _fields(place)[1]


def _fields(place: Path) -> list[str]:
    # The command's name stands in brackets and may hold spaces.
    return (place / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
