"""What a workload of the user's own has and nobody asks for: under another name it would be left out in silence."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import FunctionType
from typing import Any

from laptime.own.protocol import ASKED
from laptime.own.user_code import place_in

# What others call it, or where it is said instead.
_MEANT = {
    **dict.fromkeys(("epochs", "max_epochs", "num_epochs", "n_epochs"), "the epochs are --epochs"),
    **dict.fromkeys(("weight_decay", "momentum", "betas"), "optimizer(parameters, lr) says it"),
    **dict.fromkeys(("lr", "base_lr", "max_lr", "init_lr"), "learning_rate is asked for"),
    **dict.fromkeys(("optim", "optimizers", "make_optimizer", "configure_optimizers"), "optimizer is asked for"),
    **dict.fromkeys(("scheduler", "lr_scheduler", "make_scheduler"), "schedule is asked for"),
    **dict.fromkeys(("collate", "collator", "data_collator"), "collate_fn is asked for"),
    **dict.fromkeys(("val_collate_fn", "valid_collate_fn", "eval_collate_fn"), "test_collate_fn is asked for"),
    **dict.fromkeys(
        ("clip", "grad_clip", "clip_grad", "max_norm", "max_grad_norm", "gradient_clip_val"), "clip_norm is asked for"
    ),
    **dict.fromkeys(("sampler", "make_sampler"), "sample_weights(train) is asked for"),
    **dict.fromkeys(
        ("batch_sampler", "make_batch_sampler"),
        "batches are drawn by laptime, so let an item of data() hold samples that belong together, which loss() joins",
    ),
    **dict.fromkeys(
        ("metric", "metrics", "accuracy", "score", "compute_metrics", "validate", "validation_step", "eval", "test"),
        "quality is judged by the accuracy that loss() gives behind the loss, or by evaluate(model, batches)",
    ),
}


_EPOCH = "set_epoch"


def unused(workload: Any, file: Path, dataset: object = None) -> Iterator[str]:
    """Sentences on methods of a workload that neither laptime nor its file calls, and on attributes meant for laptime.

    A method that the file names anywhere is a helper of the user's own, and so is one that a base class from elsewhere
    has. Of attributes only those are told whose name says what they are for.

    Args:
        workload: the user's object.
        file: where it was found.
        dataset: its training data, to whom nobody says which epoch it is.
    """
    named = _named(file)
    function = getattr(dataset, _EPOCH, None)
    if callable(function) and _EPOCH not in named[False]:
        said = f"{_EPOCH}() of {type(dataset).__name__}{place_in(file, (), (function,))} is never called"
        yield f"{said}: its items stay those of the first epoch."
    yield from (
        f"{name}{'()' if isinstance(value, FunctionType) else ''} of {file.name}"
        f"{place_in(file, (), (value,))} is never asked for: {meant}."
        for name, value in _own(workload, file)
        if name not in named[isinstance(value, FunctionType)] and (meant := _meant(name, value))
    )


def _own(workload: Any, file: Path) -> Iterator[tuple[str, Any]]:
    """Public names that the workload's object or classes of its file have, and no base class from elsewhere."""
    classes = type(workload).__mro__
    mine = [c for c in classes if getattr(sys.modules.get(c.__module__), "__file__", None) == str(file)]
    others = [c for c in classes if c not in mine]
    found: dict[str, Any] = {}
    for holder in (*reversed(mine), workload):
        found.update(getattr(holder, "__dict__", {}))
    for name, given in found.items():
        value = getattr(given, "__func__", given)  # of a static method or a class's
        if not name.startswith("_") and name not in ASKED and not any(name in vars(c) for c in others):
            yield name, value


def _meant(name: str, value: Any) -> str:
    if name in _MEANT:
        return _MEANT[name]
    near = get_close_matches(name, ASKED, 1, cutoff=0.8)
    if near:
        return f"{near[0]} is asked for"
    return "nothing calls it" if isinstance(value, FunctionType) else ""


def _named(file: Path) -> tuple[set[str], set[str]]:
    """What the file's code reads or calls of an object, by name or in a string; and that with all other names it reads.

    An argument `lr` is no attribute of a workload, while a function may stand in it and be called by its own name.
    """
    tree = ast.parse("".join(linecache.getlines(str(file))))
    nodes = list(ast.walk(tree))
    read = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    read |= {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return read, read | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
