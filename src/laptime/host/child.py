"""A module of ours as a child that ends with its parent: `python -m laptime.host.child MODULE ARGUMENTS`.

It is bound to its parent before the module imports anything: torch takes seconds, in which a parent's end would go
unnoticed. See `laptime.host.processes.child_command`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import sys
from collections.abc import Sequence

from laptime.host.processes import die_with_parent
from laptime.host.stacks import tell_crashes

# Which begin with torch, its compiler and torchvision.
WITH_TORCH = (
    "laptime.predict.images",
    "laptime.predict.logged_model",
    "laptime.preflight.fitting",
    "laptime.preflight.inspecting",
    "laptime.preflight.probe",
    "laptime.worker",
)


def bring_torch() -> None:
    """Imports torch and what belongs to it without looking for garbage, which there is none of: a tenth of the time.

    Nor later: a collector that has seen nothing yet would go through all of it in the middle of an epoch.
    """
    gc.disable()
    try:
        importlib.import_module("torchvision")
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # some of torch's bindings complain at length of what is never freed
        gc.enable()


def become(words: Sequence[str]) -> None:
    """Runs a module with its arguments as `python -m` would, bound to this process's parent."""
    die_with_parent()
    tell_crashes()
    if not os.environ.get("PYTHONSAFEPATH"):
        with contextlib.suppress(OSError):  # it is gone
            # A user's modules are found there, behind what they might be mistaken for (`plain_path`).
            sys.path.append(os.getcwd())  # noqa: PTH109 - as Python writes it
    if words[0] in WITH_TORCH:
        bring_torch()
    sys.argv[:] = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    become(sys.argv[1:])
