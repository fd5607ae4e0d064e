"""The two sides made ready: environments, and the command that trains each. All of it before the clock."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from laptime.catalogue.own import is_own
from laptime.devices import EMULATED, hopeless_here
from laptime.errors import RunError
from laptime.gate.git import outside_hooks, project_of, top_of
from laptime.gate.installed import checkouts_of, module_places, own_places
from laptime.gate.records import Side, SideInfo
from laptime.gate.request import GateRequest
from laptime.host.processes import child_environment, end_tree, kept_command
from laptime.own.loop import CHECKOUTS
from laptime.spec import OptimizationSpec
from laptime.variants import written_out

Say = Callable[[str], None]
_QUESTION_S = 120.0
_LOG_LINES, _LONGEST_LINE = 40, 500


class SideError(RunError):
    """One side can't be trained; what the gate makes of it depends on the side."""

    def __init__(self, side: Side, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.side, self.log = side, last_lines(log)


def last_lines(log: str) -> str:
    """The end of what a process said, so that a bar of progress or a printed tensor fills no report."""
    lines = log.splitlines()[-_LOG_LINES:]
    return "\n".join(line if len(line) <= _LONGEST_LINE else f"…{line[-_LONGEST_LINE:]}" for line in lines)


@dataclass(frozen=True)
class Ready:
    """A side that can be trained.

    Attributes:
        command: words with the placeholders {seed}, {record} and {folder}.
        environment: variables on top of this process's own.
    """

    side: Side
    info: SideInfo
    folder: Path
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def environ(self, record: Path, seed: int) -> dict[str, str]:
        """The environment of one process."""
        own = {"LAPTIME_RECORD": str(record), "LAPTIME_SEED": str(seed), "LAPTIME_SIDE": self.side}
        return {
            **outside_hooks(child_environment(ours=False)),
            "PYTHONUNBUFFERED": "1",
            **own,
            **dict(self.environment),
        }


def make_ready(
    request: GateRequest, infos: tuple[SideInfo, SideInfo], home: Path, say: Say
) -> tuple[Ready, Ready, str, str]:
    """Environments and commands of both sides, what they train in words, and a notice on that or nothing.

    Raises:
        SideError: a side does not build, or is from before what the gate calls.
    """
    base, head = infos
    commands = (request.command_base, request.command_head)
    if commands[0] and commands[1]:
        split = [tuple(shlex.split(command)) for command in (commands[0], commands[1])]
        ready = (
            Ready("base", base, _place(base), split[0]),
            Ready("head", head, _place(head), split[1]),
        )
        written = commands[0] if commands[0] == commands[1] else f"{commands[0]} against {commands[1]}"
        return _with_own_modules(ready, written)
    fit = fitting(Path(base.folder), Path(head.folder))
    python = _python("base", base, fit, say)
    written, notice = _written_out(request, base, python)
    ready = (
        _own_laptime("base", base, python, (request, written, home)),
        _own_laptime("head", head, _python("head", head, fit, say), (request, written, home)),
    )
    return _with_own_modules(ready, written) if is_own(request.workload) else (*ready, written, notice)


def _with_own_modules(ready: tuple[Ready, Ready], written: str) -> tuple[Ready, Ready, str, str]:
    """Both sides so that they import their own modules, be others installed for development; see `installed`."""
    mine = top_of(Path.cwd())
    tops = checkouts_of((*([mine] if mine else []), *(Path(r.info.folder) for r in ready)))
    seen: dict[str, None] = {}

    def own(side: Ready) -> Ready:
        around = {**child_environment(), **dict(side.environment)}
        here = Path(side.info.folder).resolve()
        others = (top.resolve() for top in checkouts_of(Path(r.info.folder) for r in ready))
        told = os.pathsep.join(map(str, (here, *(top for top in others if top != here))))
        places = own_places(here, tops, module_places(side.command, side.folder, around))
        seen.update({str(place.relative_to(here)): None for place in places})
        path = os.pathsep.join([*map(str, places), *filter(None, [around.get("PYTHONPATH")])])
        first = (("PYTHONPATH", path),) if places else ()
        return replace(side, environment=(*side.environment, *first, (CHECKOUTS, told)))

    base, head = own(ready[0]), own(ready[1])
    notice = (
        f"Modules that are installed for development, or on PYTHONPATH, from a checkout ({', '.join(seen)}) are "
        "imported from each side's own."
    )
    return base, head, written, notice if seen else ""


def _place(info: SideInfo) -> Path:
    """Where a side trains: in the folder of its checkout that the gate was called in."""
    return Path(info.folder) / info.inside


def what_trains(request: GateRequest, written: str, info: SideInfo) -> str:
    """What is gated, in words that earlier gates are found by: many projects have a `train` and a `python train.py`."""
    by_command = (project_of(Path(info.folder)), info.inside) if request.command_base else ()
    return " ".join(filter(None, (request.workload, written, *by_command)))


def _own_laptime(side: Side, info: SideInfo, python: str, what: tuple[GateRequest, str, Path]) -> Ready:
    """A side that trains with its own `laptime run`."""
    request, written, home = what
    bare = _questioned(side, info, python, is_own(request.workload))
    kept = info.model_copy(update={"environment": "shared" if python == sys.executable else "own"})
    command = (python, "-m", "laptime", "run", request.workload, *request.run_options(written, bare))
    return Ready(side, kept, _place(info), command, _variables(info, home))


def pins(folder: Path) -> tuple[str, ...]:
    """What decides a side's environment: its constraints and its declared dependencies."""
    constraints = folder / "constraints.txt"
    text = constraints.read_text(encoding="utf-8", errors="replace") if constraints.is_file() else ""
    lines = sorted(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        declared = sorted(map(str, project.get("dependencies", ())))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return (*lines, "")  # it says nothing that can be read
    return (*lines, *declared, str(project.get("requires-python", "")))


def fitting(base: Path, head: Path, own: Path | None = None) -> frozenset[Side]:
    """The sides that this interpreter's environment is made for: both where they pin the same.

    Else a side that pins what the checkout pins that this very laptime comes from, which is head's in a workflow.

    Args:
        base: its checkout.
        head: its checkout.
        own: the checkout that this environment was installed from; None for this file's.
    """
    sides: dict[Side, tuple[str, ...]] = {"base": pins(base), "head": pins(head)}
    if sides["base"] == sides["head"]:
        return frozenset(sides)
    mine = pins(own or Path(__file__).resolve().parents[3])
    return frozenset(side for side, pinned in sides.items() if pinned == mine)


def _python(side: Side, info: SideInfo, fit: frozenset[Side], say: Say) -> str:
    """The interpreter of a side: this one where it fits, else one that the side's own set-up makes."""
    folder = Path(info.folder)
    own = folder / ".venv" / "bin" / "python"
    if side in fit:
        return sys.executable
    if own.is_file():
        return str(own)
    if not (folder / "scripts" / "setup").is_file():
        raise SideError(
            side, f"{side} pins other dependencies and has no scripts/setup to install them: give --command."
        )
    say(f"{side} pins other dependencies: its environment is installed beside it, which takes some minutes.")
    done = _run([str(folder / "scripts" / "setup")], folder, outside_hooks(child_environment(ours=False)))
    if done.returncode != 0:
        raise SideError(side, f"{side}'s scripts/setup ended with {done.returncode}.", done.stdout + done.stderr)
    return str(own)


def _run(
    words: list[str], folder: Path, environment: dict[str, str], timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, and ends its whole tree on the way out, whatever the way is."""
    pipe = subprocess.PIPE
    command = kept_command(*words)
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        try:
            said, complained = process.communicate(timeout=timeout_s)
        finally:
            if process.poll() is None:
                end_tree(process.pid)
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


def _variables(info: SideInfo, home: Path) -> tuple[tuple[str, str], ...]:
    """The side's own code before what is installed; one home, so that both read the same stored data."""
    return (
        ("PYTHONPATH", str(Path(info.folder) / "src")),
        ("LAPTIME_HOME", str(home)),
        ("LAPTIME_COMMIT", info.sha[:12] + ("+" if info.dirty else "")),
    )


def _ask(side: Side, info: SideInfo, python: str, *arguments: str) -> str:
    """What a side's own laptime answers; raises SideError where it has no answer."""
    environment = {**outside_hooks(child_environment()), **dict(_variables(info, Path(info.folder))), "COLUMNS": "200"}
    try:
        done = _run([python, *arguments], Path(info.folder), environment, _QUESTION_S)
    except subprocess.TimeoutExpired as error:
        raise SideError(
            side,
            f"{side}'s own laptime ({info.sha[:12] or info.folder}) does not answer {' '.join(arguments[1:4])} within "
            f"{_QUESTION_S:g} s; --command gates any training that writes a record.json.",
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise SideError(
            side,
            f"{side}'s own laptime ({info.sha[:12] or info.folder}) does not answer {' '.join(arguments[1:4])}: "
            f"{last[:200]}; --command gates any training that writes a record.json.",
            done.stdout + done.stderr,
        )
    return done.stdout


def _questioned(side: Side, info: SideInfo, python: str, own: bool) -> bool:
    """Whether a side's `laptime run` can leave out the check and the model; makes sure that it is the side's own.

    A checkout with a training of the user's own need not hold laptime: then both sides have the installed one.
    """
    place = _ask(side, info, python, "-c", "import laptime; print(laptime.__path__[0])").strip()
    if not own and not Path(place).resolve().is_relative_to(Path(info.folder).resolve()):
        raise SideError(side, f"{side} would train with the laptime in {place}, not its own: use --command.")
    return "--bare" in _ask(side, info, python, "-m", "laptime", "run", "--help")


def _written_out(request: GateRequest, base: SideInfo, python: str) -> tuple[str, str]:
    """Base's variant as the list that it stands for there, so that head can't mean another one by its name.

    With it a notice, where it is less than that, since this machine can't run all of it; or nothing.

    For a workload of the user's own it stays a name: what it stands for depends on what a run finds in the file, and
    sides that find something else are told apart by their specs.
    """
    if is_own(request.workload):
        return request.variant, ""
    answer = _ask("base", base, python, "-m", "laptime", "explain", request.variant, "--json")
    try:
        told = json.loads(answer)
        chosen = [OptimizationSpec(name=t["optimization"], options=t["options"]) for t in told["transforms"]]
        hopeless = hopeless_here(request.variant, [o.name for o in chosen], told["device"])
        notice = f"{request.variant} is gated without {' and '.join(hopeless)}: {EMULATED}." if hopeless else ""
        return written_out(told["device"], (o for o in chosen if o.name not in hopeless)), notice
    except (ValueError, LookupError, TypeError) as error:
        reason = (
            f"base's own laptime does not say what {request.variant} stands for: give it written out, or --command."
        )
        raise SideError("base", reason, answer) from error
