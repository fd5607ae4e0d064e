"""How a worker is started: in this process, in a fresh one; torchrun and Kubernetes stand beside these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from laptime.errors import unknown
from laptime.launchers import inline, process
from laptime.launchers.base import Hooks
from laptime.records import RunRecord
from laptime.spec import RunSpec

LAUNCHERS: tuple[tuple[str, Callable[[RunSpec, Path, Hooks], RunRecord]], ...] = (
    ("inline", inline.launch),
    ("process", process.launch),
)


def launch(name: str, spec: RunSpec, folder: Path, hooks: Hooks) -> RunRecord:
    """Runs a spec through a launcher; the record also stands in `folder/record.json`."""
    for known, start in LAUNCHERS:
        if known == name:
            return start(spec, folder, hooks)
    raise unknown("launcher", name, [n for n, _ in LAUNCHERS])
