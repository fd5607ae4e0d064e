"""What a LightningModule does that only Lightning's own Trainer can follow: found before it trains, named by line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from laptime.errors import UsageError

PACKAGES = ("lightning", "pytorch_lightning")
_MANUAL = "it steps its optimizers by hand, as GANs do"
_TRAINER = "outside of Lightning's Trainer there is none"
# Attributes of a module that only a Trainer fills, each with what is told of it.
_TOUCHED = {
    "trainer": _TRAINER,
    "current_epoch": _TRAINER,
    "global_step": _TRAINER,
    "optimizers": _MANUAL,
    "manual_backward": _MANUAL,
    "toggle_optimizer": _MANUAL,
    "lr_schedulers": _MANUAL,
}
# Hooks that change a step or a batch; those at other places are left out with a note.
_STEP_HOOKS = (
    *("backward", "optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping", "lr_scheduler_step"),
    *("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"),
    *("on_train_batch_start", "on_train_batch_end", "on_before_zero_grad", "on_before_backward"),
    *("on_after_backward", "on_before_optimizer_step", "configure_sharded_model"),
)
_NEVER_CALLED = ("test_step", "predict_step", "predict_dataloader", "teardown", "configure_callbacks", "on_")


def is_lightning(value: object, name: str) -> bool:
    """Whether a value is Lightning's class of a name, one below it, or an object of such; imports nothing."""
    return any(c.__name__ == name and _theirs(c) for c in _kind(value).__mro__)


def overridden(value: object, name: str) -> Any:
    """The method of the user's that takes the place of one of Lightning's; None where there is none."""
    owner = next((c for c in _kind(value).__mro__ if name in vars(c)), None)
    return None if owner is None or _theirs(owner) or owner is object else vars(owner)[name]


def line_of(function: Any) -> str:
    """Where a function of the user's begins: `lit.py, line 12`."""
    code = getattr(function, "__code__", None)
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno}" if code else "a line that is not known"


def refuse_what_needs_a_trainer(value: object, file: Path) -> None:
    """Raises UsageError for what can't be had without the Trainer: hooks of the step, optimizers by hand, its state."""
    name = _kind(value).__name__
    for hook in _STEP_HOOKS:
        function = overridden(value, hook)
        if function is not None:
            raise UsageError(
                f"{name} has {hook}() ({line_of(function)}), which only Lightning's Trainer calls: do its work in "
                "training_step() or in the data set."
            )
    for attribute, line in _touched(value, file):
        raise UsageError(
            f"{name} uses self.{attribute} ({file.name}, line {line}), but {_TOUCHED[attribute]}: write its training "
            "as a plain workload (laptime new)."
        )
    if not getattr(value, "automatic_optimization", True):
        raise UsageError(f"{name} of {file.name} switches automatic optimization off, so {_MANUAL}: laptime steps one.")


def left_out(value: object) -> tuple[str, ...]:
    """Notes on hooks of the user's that are not called and change no step."""
    found = sorted({n for c in _kind(value).__mro__ if not _theirs(c) for n in vars(c) if n.startswith("on_")})
    return (f"not called: {', '.join(found)} of {_kind(value).__name__}",) if found else ()


def _touched(value: object, file: Path) -> Iterator[tuple[str, int]]:
    """Attributes that a Trainer fills, in methods that are called, with their lines."""
    classes = {c.__name__ for c in _kind(value).__mro__}
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith(_NEVER_CALLED)]
            for found in (n for method in methods for n in ast.walk(method) if isinstance(n, ast.Attribute)):
                if isinstance(found.value, ast.Name) and found.value.id == "self" and found.attr in _TOUCHED:
                    yield found.attr, found.lineno


def _kind(value: object) -> type:
    return value if isinstance(value, type) else type(value)


def _theirs(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in (*PACKAGES, "torch", "builtins", "abc")
