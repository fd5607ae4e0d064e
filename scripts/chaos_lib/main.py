"""`scripts/chaos`: real jobs, random faults, and the promises after each."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import promises
from faults import DISK_FULL, FAULTS, Fault, MissedError, inner_role, training, wait
from jobs import Job, Kind, kinds
from report import Happened, table
from stage import Stage, a_stage
from tests.samples import write_folder

from laptime.errors import LaptimeError
from laptime.records import read_ladder

_END_S = 240.0  # the device may be in use by others meanwhile
_BETWEEN_S = (0.2, 6.0)
_MOST, _LAST = 6, 0.2
_TRIES = 5
_AGAIN = 0.3  # how often what goes on is disturbed, too
_NONE = Fault("none", lambda *_: "", lambda _: True, fair=(0,))
_FAILED = Fault("none", lambda *_: "", lambda _: True)


@dataclass
class Chaos:
    """One session of disorder."""

    stage: Stage
    seed: int
    begin: float
    only: str | None = None
    happened: list[Happened] = field(default_factory=list)
    rounds: int = 0

    def round(self, kind: Kind | None = None, quiet: bool = False) -> None:
        """One job from its start to its end, what disturbs it, and what must hold after it."""
        self.rounds += 1
        choice = random.Random(f"{self.seed}/{self.rounds}")  # noqa: S311 - not for secrets
        kinds_here = [k for k in kinds(self.stage) if self.only in (None, k.name)]
        kind = kind or choice.choices(kinds_here, [k.weight for k in kinds_here])[0]
        out = self.stage.disk / f"{self.rounds:03}-{kind.name}"
        job = Job(kind, self.stage, out, [word.replace("{}", str(out)) for word in kind.arguments])
        mine, broken = self._through(job, choice, quiet)
        self._look_after(job, mine, broken)
        self._tell(job, mine)

    def _through(self, job: Job, choice: random.Random, quiet: bool) -> tuple[list[Happened], list[str]]:
        """Lets things happen to a job; a ladder that they broke off goes on, and things happen to it again."""
        happened, faults, broken = self._once(job, choice, quiet, [])
        while faults and self._unfinished(job):
            before = promises.digests(job.out)
            again = Job(job.kind, self.stage, job.out, [*job.given[:2], "--resume", str(job.out)])
            quiet = choice.random() >= _AGAIN
            more, worse, found = self._once(again, choice, quiet, faults)
            after = promises.digests(job.out)
            changed = [name for name, digest in before.items() if after.get(name) != digest]
            happened, faults, broken = happened + more, faults + worse, broken + found
            broken += [f"--resume changed what was finished: {', '.join(changed)}"] if changed else []
            if quiet:
                broken += ["--resume did not end the ladder"] if self._unfinished(job) else []
                break
        return happened, broken

    def _once(
        self, job: Job, choice: random.Random, quiet: bool, earlier: list[Fault]
    ) -> tuple[list[Happened], list[Fault], list[str]]:
        """A job from its start to its end, and what must hold as soon as it has ended; then all is repaired."""
        if job.kind.name == "fetch" and self.stage.storage is not None:
            self.stage.storage.block_s = 0.1  # else it is over before anything can happen to it
        job.start()
        try:
            mine, faults = ([], []) if quiet else self._disturb(job, choice)
            # A training that was hit itself, and not with the command alone, or that found no room stays a failed one.
            hurt = len(earlier) > 1 or any(f.name == DISK_FULL for f in earlier)
            broken = self._ended(job, faults or [_FAILED if hurt else _NONE])
            broken += promises.nothing_left(job) + promises.locks_free(job) + promises.words(job)
        finally:
            job.end()
        self.stage.repair()
        return mine, faults, broken

    def _disturb(self, job: Job, choice: random.Random) -> tuple[list[Happened], list[Fault]]:
        """Lets one thing after another happen to a job until it ends, or enough has happened to it."""
        possible = [f for f in FAULTS if f.possible(job)]
        inside = [f for f in possible if f.signal != signal.SIGINT]
        mine: list[Happened] = []
        faults: list[Fault] = []
        for _ in range(_MOST):
            if not wait(job, choice.uniform(*_BETWEEN_S)):
                break
            last = choice.random() < _LAST
            fault = choice.choice([f for f in possible if f.ends] if last else inside)
            before = training(job) if fault.ends else set()
            found = Happened(time.monotonic() - self.begin, f"{job.kind.name} {self.rounds}", fault.name, "")
            try:
                role = "command" if last else inner_role(job, choice)
                found.what = fault.act(job, choice, role)
            except MissedError:
                continue
            if before and (last or fault.ends):
                found.gone_s, found.broken = promises.gone(job, before)
            mine.append(found)
            faults.append(fault)
            if last:
                break
        return mine, faults

    def _look_after(self, job: Job, mine: list[Happened], broken: list[str]) -> None:
        """Looks at every promise about what a job leaves; what is broken is put to the last fault."""
        places = self.stage.places(job.kind.home)
        if job.out.is_dir():
            broken += promises.files_whole(job.out)
        if job.kind.tracked:
            broken += promises.arrived_once(self.stage, places)
        elif job.kind.name == "fetch":
            broken += self._fetched()
        broken += promises.temporary_empty(self.stage)
        if broken and not mine:
            mine.append(Happened(time.monotonic() - self.begin, f"{job.kind.name} {self.rounds}", "none", ""))
        if broken:
            mine[-1].broken += broken
            self._keep(job)
        shutil.rmtree(job.out, ignore_errors=True)
        shutil.rmtree(self.stage.temporary)
        self.stage.temporary.mkdir()
        promises.forget(places)

    def _ended(self, job: Job, faults: list[Fault]) -> list[str]:
        assert job.process is not None
        try:
            code = job.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return [f"still running {_END_S:.0f} s later"]
        fair = {*job.kind.fair, *(code for fault in faults for code in fault.fair)}
        return [] if code in fair else [f"exit code {code}, of which none of {sorted(fair)} was expected"]

    def _unfinished(self, job: Job) -> bool:
        """Whether a ladder was broken off, so that it can go on."""
        path = job.out / "ladder.json"
        if not job.kind.ladder or not path.is_file():
            return False
        try:
            # One whose baseline was hit has failed, and that is its end.
            return read_ladder(path).status in ("running", "interrupted")
        except LaptimeError:
            return False  # told by whoever looks whether files are whole

    def _fetched(self) -> list[str]:
        """The same fetch once more comes through, whatever was left, and its bytes are right."""
        broken = []
        for what in ("fetch", "verify"):
            for _ in range(_TRIES):
                done = self.stage.laptime(["data", what, "cifar", "--data", self.stage.mirror], "mirrored")
                # SeaweedFS on a machine without a free core loses sight of its own volumes for seconds.
                if not done.returncode or "InternalError: try again" not in done.stderr:
                    break
                time.sleep(2.0)
            if done.returncode:
                broken.append(f"laptime data {what} afterwards ended with {done.returncode}: {done.stderr[-300:]}")
        shutil.rmtree(self.stage.places("mirrored").home, ignore_errors=True)
        return broken

    def _keep(self, job: Job) -> None:
        """Keeps what there is to look at: the disk goes with its namespace."""
        to = self.stage.folder / "broken" / job.out.name
        to.mkdir(parents=True, exist_ok=True)
        left_out = shutil.ignore_patterns("*.pt", "data", "artifacts")
        for source in (job.out, self.stage.places(job.kind.home).home):
            if source.is_dir():
                shutil.copytree(source, to / source.name, ignore=left_out, dirs_exist_ok=True)
        shutil.copy(job.log, to)

    def _tell(self, job: Job, mine: list[Happened]) -> None:
        self.happened += mine
        for one in mine or [Happened(time.monotonic() - self.begin, f"{job.kind.name} {self.rounds}", "none", "")]:
            sys.stdout.write(one.line() + "\n")
        sys.stdout.flush()


def run(folder: Path, asked: argparse.Namespace) -> int:
    """The whole session; returns the exit code."""
    with a_stage(folder) as stage:
        _furnish(stage)
        if asked.only and asked.only not in [k.name for k in kinds(stage)]:
            sys.stderr.write(f"there is no job {asked.only!r} on this machine: {'; '.join(stage.without)}\n")
            return 2
        chaos = Chaos(stage, asked.seed, time.monotonic(), asked.only)
        for reason in stage.without:
            sys.stdout.write(f"left out: {reason}\n")
        while time.monotonic() < chaos.begin + asked.seconds:
            chaos.round()
        # After all of it a ladder that nobody disturbs comes through.
        chaos.round(next(k for k in kinds(stage) if k.name == "ladder"), quiet=True)
        seconds = time.monotonic() - chaos.begin
    text = table(chaos.happened, seconds, asked.seed, stage.without)
    sys.stdout.write(f"\n{text}")
    if asked.report:
        asked.report.write_text(f"# Chaos\n\n{text}", encoding="utf-8")
    broken = any(h.broken for h in chaos.happened)
    if broken:
        sys.stdout.write(f"\nA promise was broken: --seed {asked.seed}, look at {folder / 'broken'}.\n")
    return int(broken)


def _furnish(stage: Stage) -> None:
    """Makes the data that jobs take: a folder of images, and a larger one on S3."""
    write_folder(stage.folder / "images", train=24, test=8)
    if stage.s3 is None:
        return
    write_folder(stage.folder / "mirror", train=300, test=50)
    pushed = stage.laptime(
        ["data", "push", "cifar", "--data", str(stage.folder / "mirror"), "--to", stage.mirror], "pushing"
    )
    if pushed.returncode:
        raise RuntimeError(f"the data could not be pushed: {pushed.stderr}")


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="no job is started after that")
    parser.add_argument("--seed", type=int, default=0, help="of what is chosen; moments depend on the machine, too")
    names = ("ladder", "ranks", "cifar", "run", "gate", "fetch")
    parser.add_argument("--only", choices=names, help="this kind of job alone; default: all kinds")
    parser.add_argument("--keep", type=Path, help="the folder of it all, which stays; default: a temporary one")
    parser.add_argument("--report", type=Path, help="writes the table there, as Markdown")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    # A shell without job control starts what it puts into the background with Ctrl-C ignored, and jobs inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = asked.keep.resolve() if asked.keep else Path(tempfile.mkdtemp(prefix="laptime-chaos-"))
    code = 1
    try:
        code = run(folder, asked)
    finally:
        if code == 0 and not asked.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
