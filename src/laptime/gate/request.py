"""What a user asks of a gate: the options of `laptime gate` and the parameters of the Prefect flow."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from laptime.catalogue.own import is_own
from laptime.data.choices import split_choices
from laptime.devices import choose_device
from laptime.durations import duration_s
from laptime.errors import UsageError, shorten
from laptime.gate.policy import make_policy
from laptime.gate.records import PolicyRecord
from laptime.spec import Frozen, explain

# For a command that uses no device that laptime knows: nothing is locked.
NO_DEVICE = "none"
_OF_A_SHELL = ("cd", "export", "source", ".", "set", "ulimit", "unset")
_BETWEEN = ("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1", "2>")


class GateRequest(Frozen):
    """The request.

    Attributes:
        workload: a workload, or any name where commands are given.
        budget_s: seconds for all measured pairs; making ready costs none of it.
        epochs: kept epochs of each process, after one that is not kept.
        aa: pairs of base against itself, 0 for a gate.
        link: files and folders of the checkout that both commits find at their places, though they are in neither.
    """

    workload: str
    variant: str = ""
    base: str | None = None
    base_dir: str | None = None
    head_dir: str | None = None
    command_base: str | None = None
    command_head: str | None = None
    max_slowdown: float = 0.10
    budget_s: Annotated[float, Field(gt=0)] = 900.0
    max_pairs: int = 24
    epochs: Annotated[int, Field(ge=1)] = 3
    limit_train: Annotated[int, Field(ge=1)] | None = None
    limit_test: Annotated[int, Field(ge=1)] | None = None
    data: str = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    device: str = "cpu"
    aa: Annotated[int, Field(ge=0)] = 0
    link: tuple[str, ...] = ()

    def policy(self) -> PolicyRecord:
        """The rule; raises UsageError where it promises nothing."""
        made = make_policy(self.max_slowdown, self.max_pairs)
        return PolicyRecord(max_slowdown=made.max_slowdown, alpha=made.alpha, beta=made.beta, looks=made.looks)

    @property
    def tests_limit(self) -> int | None:
        """Test images of each evaluation, which stands outside the epoch but not outside a pair's cost."""
        if self.limit_test is not None or self.limit_train is None:
            return self.limit_test
        return max(1, self.limit_train // 5)

    def run_options(self, variant: str, bare: bool) -> tuple[str, ...]:
        """The options of each side's `laptime run`, but for the placeholders of one process."""
        given = {
            "--variant": variant,
            "--epochs": self.epochs,
            "--warmup-epochs": 1,
            "--limit-train": self.limit_train,
            "--limit-test": self.tests_limit,
            "--data": _from_anywhere(self.data),
            # The gate ends a process itself; the process's own clock does not know when it waits for its turn.
            "--timeout": 2 * self.timeout,
            "--seed": "{seed}",
            "--out": "{folder}",
        }
        words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        return (*words, "--bare") if bare else tuple(words)


def make_gate_request(**options: Any) -> GateRequest:
    """Builds a request from options as users write them: `max_slowdown=10%`, `budget=15m`, `device=auto`.

    Raises:
        UsageError: in one sentence where an option makes no sense.
    """
    command = options.pop("command", None)
    if "max_slowdown" in options:
        options["max_slowdown"] = share(options["max_slowdown"])
    if "budget" in options:
        options["budget_s"] = seconds(options.pop("budget"))
    options["device"] = _device(options.get("device", "auto"), bool(command or options.get("command_base")))
    options["variant"] = options.get("variant") or f"{options['device']}-optimized"
    options["link"] = tuple(options.get("link") or ())
    for side in ("command_base", "command_head"):
        options[side] = options.get(side) or command
    try:
        request = GateRequest(**options)
    except ValidationError as error:
        raise UsageError(f"{explain(error, options=True)}.") from error
    _check(request)
    request.policy()
    if request.command_base:
        _check_beside_command(request)
    return request


def _check(request: GateRequest) -> None:
    """Refuses what names no two sides; raises UsageError."""
    for one, other in (("command_base", "command_head"), ("base_dir", "head_dir")):
        if bool(getattr(request, one)) != bool(getattr(request, other)):
            names = [f"--{name.replace('_', '-')}" for name in (one, other)]
            raise UsageError(f"{names[0]} and {names[1]} belong together: give both.")
    if request.aa and (request.command_base != request.command_head or request.base_dir != request.head_dir):
        raise UsageError("--aa measures base against itself, and two sides are given: give one side twice.")
    if request.base and request.base_dir:
        raise UsageError("--base and --base-dir exclude each other: give a ref, or two folders.")
    if request.link and (request.base_dir or (request.command_base != request.command_head and not request.base)):
        raise UsageError("--link is for commits, which are checked out anew, and no commit is: leave it out.")
    if is_own(request.workload) and not request.command_base and Path(request.workload).expanduser().is_absolute():
        raise UsageError(
            f"{shorten(request.workload)!r} is one file for both sides: give its path inside the checkout."
        )


def _check_beside_command(request: GateRequest) -> None:
    """Refuses what a command of the user's own would never hear of; raises UsageError."""
    fields = GateRequest.model_fields
    given = [n for n in ("epochs", "limit_train", "limit_test", "data") if getattr(request, n) != fields[n].default]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} does not reach a command of your own: leave it out, and write it there."
        )
    one, other = str(request.command_base), str(request.command_head)
    _check_words("command" if one == other else "command-base", one)
    _check_words("command" if one == other else "command-head", other)


def _check_words(option: str, command: str) -> None:
    """Refuses what only a shell would understand, since words of it would go to the training; raises UsageError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--{option} {shorten(command)!r} can't be split into words: {error}.") from error
    if not words:
        raise UsageError(f"--{option} {command!r} names no program: give what trains.")
    begins = words[0] in _OF_A_SHELL or re.match(r"\w+=", words[0])
    if begins or any(word in _BETWEEN for word in words):
        raise UsageError(
            f"--{option} {shorten(command)!r} is for a shell, and none reads it: give sh -c with it in quotes."
        )


def _device(asked: str, by_command: bool) -> str:
    """The device whose lock is held: `none` only where a command is what trains."""
    return asked if asked == NO_DEVICE and by_command else choose_device(asked)


def _from_anywhere(data: str) -> str:
    """A place on the disk with its whole path, since each side runs in a checkout of its own; what follows # stays."""
    place, _ = split_choices(data)
    return f"{Path(place).resolve()}{data[len(place) :]}" if Path(place).exists() else data


def seconds(text: str) -> float:
    """Reads `90`, `90s`, `15m` or `1.5h` as seconds; raises UsageError."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise UsageError(f"--budget {shorten(text)!r} {error}.") from None


def share(text: str) -> float:
    """Reads `10%` or `0.1` as a share; raises UsageError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(%?)", text.strip())
    if not found or float(found[1]) == math.inf:
        raise UsageError(f"--max-slowdown {shorten(text)!r} is no share: give 10% or 0.1.")
    return float(found[1]) / (100 if found[2] else 1)
