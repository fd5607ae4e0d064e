"""How a worker is started: in this process, in a fresh one, as several ranks, in pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from laptime.errors import UsageError, unknown
from laptime.launchers import inline, kubernetes, process, torchrun
from laptime.launchers.base import Hooks
from laptime.launchers.settings import read_settings
from laptime.records import RunRecord
from laptime.spec import RunSpec

LAUNCHERS: tuple[tuple[str, Callable[[RunSpec, Path, Hooks], RunRecord]], ...] = (
    ("inline", inline.launch),
    ("process", process.launch),
    ("torchrun", torchrun.launch),
    ("kubernetes", kubernetes.launch),
)

AUTO = "auto"
NAMES = (AUTO, *(name for name, _ in LAUNCHERS))


def launcher_of(asked: str, variant: str, ranks: int) -> str:
    """Settles `auto`: a process for one rank, torchrun for several.

    Raises:
        UsageError: the launcher does not exist or starts one rank only.
    """
    if asked not in NAMES:
        raise unknown("launcher", asked, NAMES)
    if asked == AUTO:
        return "process" if ranks == 1 else "torchrun"
    if ranks > 1 and asked not in ("torchrun", "kubernetes"):
        raise UsageError(
            f"--launcher {asked} starts one rank, but {variant} has {ranks}: give auto, torchrun or kubernetes."
        )
    return asked


def ranks_there(asked: str) -> int | None:
    """How many ranks a launcher holds that starts them elsewhere; None for this machine's.

    Raises:
        UsageError: its settings make no sense.
    """
    return read_settings().ranks if asked == "kubernetes" else None


def launch(name: str, spec: RunSpec, folder: Path, hooks: Hooks) -> RunRecord:
    """Runs a spec through a launcher; the record also stands in `folder/record.json`."""
    return dict(LAUNCHERS)[launcher_of(name, spec.variant, spec.ranks)](spec, folder, hooks)
