"""What a LightningModule keeps of how many steps its training has: a larger batch takes fewer, and nobody tells it."""

from __future__ import annotations

import ast
from typing import Any

from laptime.data.lightning.module import LightningWorkload
from laptime.data.lightning.refused import methods_of
from laptime.values.draws import drawn, put_back_drawn
from laptime.values.tallies import plain_numbers

_STEPS = ("num_training_batches", "estimated_stepping_batches")


def length_refusals(workload: object) -> dict[str, str]:
    """Why a larger batch would train it otherwise: numbers of its that are others where there are twice the steps."""
    if not isinstance(workload, LightningWorkload) or not _asks(module := _made(workload, 1)):
        return {}
    once, twice = _numbers(module), _numbers(_made(workload, 2))
    kept = [name for name, number in once.items() if twice.get(name) != number]
    told = f"its module keeps {', '.join(kept)}, by the number of steps, and a larger batch takes fewer"
    return {"large-batch": told} if kept else {}


def _asks(module: Any) -> bool:
    methods = (method for _, method in methods_of(module))
    return any(isinstance(n, ast.Attribute) and n.attr in _STEPS for method in methods for n in ast.walk(method))


def _made(workload: LightningWorkload, times: int) -> Any:
    """A fresh module that is told of so many times the steps; what it draws is put back."""
    before, workload.stretched = drawn(), times
    try:
        return workload.model().module
    finally:
        workload.stretched = 1
        put_back_drawn(before)


def _numbers(module: Any) -> dict[str, str]:
    """The numbers that a module and its parts hold, by name."""
    parts = [(name, part) for name, part in module.named_modules() if hasattr(part, "__dict__")]
    return {f"{name}.{n}".lstrip("."): repr(v) for name, part in parts for n, v in plain_numbers(part).items()}
