"""What a LightningModule asks of Lightning's Trainer and laptime leaves out: told with its lines."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laptime.data.lightning.arguments import arguments_of, made_in
from laptime.data.lightning.refused import (
    STEPS,
    line_of,
    methods_of,
    names_of_self,
    of_self,
    overridden,
    reached,
)

# Hooks by whose beginning nothing of a training can depend on them.
_BEHIND = ("on_test", "on_predict", "on_save", "on_load", "on_fit_end", "on_train_end", "on_exception")
# What freezes, or tells a data set where its training is, whatever it is called on.
_MODES = ("eval", "train")
_SETTING = ("freeze", "unfreeze", "requires_grad_", *_MODES, "set_epoch")
# What writes weights, or moves on what follows them, of the object's own.
_WRITING = ("apply", "load_state_dict", "update_parameters", "copy_to", "step")
# What gives parts of a net or its optimizers.
_HOLDING = {"modules", "named_modules", "children", "parameters", "named_parameters", "optimizers", "lr_schedulers"}
# What an optimizer's groups hold.
_OF_GROUPS = ("lr", "momentum", "betas", "weight_decay")
_FROZEN = "requires_grad"
# Arguments of a Trainer that make it another training, each with what changes nothing, and what does their work here.
_ARGUMENTS: dict[str, tuple[tuple[object, ...], str]] = {
    "gradient_clip_val": ((None, 0), "give the module clip_norm"),
    "gradient_clip_algorithm": ((None, "norm"), "clip_norm bounds the whole gradient's norm"),
    "accumulate_grad_batches": (
        (None, 1),
        "give the loader as many times the batch_size, and the module what the loader has now as micro_batch_size",
    ),
    "limit_train_batches": ((None,), "give --limit-train, in samples"),
    "overfit_batches": ((None, 0), "give --limit-train, in samples"),
    "ckpt_path": ((None,), "load weights in __init__(), and moments in configure_optimizers()"),
    "precision": ((None, 32, "32", "32-true"), "the baseline trains in fp32, and rungs try bf16 and fp16"),
}


# Callbacks that show, keep or end a training and leave its steps as they are.
_WATCHING = ("Checkpoint", "Monitor", "Progress", "ProgressBar", "Summary", "EarlyStopping", "Timer", "Logger")
_CALLED = "where it changes the training, do its work in training_step(); averages of the weights are the rung ema"


@dataclass(frozen=True)
class Uncalled:
    """A hook of the user's that is not called.

    Attributes:
        name: of the method.
        place: its file and line.
        changes: what steps read, or what is trained, that it changes.
        empties: attributes that it empties and steps fill.
    """

    name: str
    place: str
    changes: tuple[str, ...]
    empties: tuple[str, ...]


def uncalled(value: object) -> list[Uncalled]:
    """The hooks of a module or its data that no Trainer calls here."""
    names = {n for c in type(value).__mro__ for n in vars(c) if n.startswith("on_") or n == "configure_callbacks"}
    bodies = [method for _, method in methods_of(value)]
    found = ((name, overridden(value, name)) for name in sorted(names))
    return [_looked_at(name, hook, bodies) for name, hook in found if hook is not None]


def notes_on(value: object) -> list[str]:
    """What a comparison says of the hooks that are not called."""
    hooks = uncalled(value)
    said = ", ".join(f"{hook.name} ({hook.place})" for hook in hooks)
    full = ", ".join(name for hook in hooks for name in hook.empties)
    notes = [f"not called: {said} of {type(value).__name__}"] if hooks else []
    return notes + ([f"what such hooks would empty grows with each step: {full}"] if full else [])


def warning_of(value: object) -> str:
    """What a user must know before a ladder: hooks that change the training, which goes on without them."""
    hooks = [hook for hook in uncalled(value) if hook.changes]
    said = ", ".join(f"{hook.name}() ({hook.place}) with {', '.join(hook.changes)}" for hook in hooks)
    if not hooks:
        return ""
    remedy = "do it in __init__(), or in training_step() by self.current_epoch"
    without = "has hooks that are not called, so training goes on without what they change"
    return f"{type(value).__name__} {without}, {said}: {remedy}."


def trainer_arguments(file: Path, given: Sequence[str] = ()) -> list[str]:
    """Notes on arguments and callbacks for a Trainer in the user's file, which nobody makes here.

    Args:
        file: the user's.
        given: arguments whose work is done.
    """
    tree = ast.parse(file.read_bytes())
    arguments = list(arguments_of(tree))
    seen = [(n, v) for n, v in arguments if n in _ARGUMENTS and n not in given and not _is_default(n, v)]
    notes = [
        _argument_note(f"{n}={ast.unparse(v)}", f"{file.name}, line {v.lineno}", _ARGUMENTS[n][1]) for n, v in seen
    ]
    called = [c for name, value in arguments if name == "callbacks" for c in made_in(tree, value) if _changes_steps(c)]
    return notes + [
        f"the callback {ast.unparse(c)} ({file.name}, line {c.lineno}) is not run: {_CALLED}" for c in called
    ]


def _argument_note(what: str, place: str, remedy: str) -> str:
    return f"{what} of the Trainer ({place}) is not seen: {remedy}"


def _changes_steps(callback: ast.expr) -> bool:
    """Whether a callback may do so: one that is made there, under a name that does not say that it watches."""
    return isinstance(callback, ast.Call) and not ast.unparse(callback.func).endswith(_WATCHING)


def _is_default(name: str, value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in _ARGUMENTS[name][0]


def _looked_at(name: str, hook: Any, bodies: Sequence[ast.FunctionDef]) -> Uncalled:
    """What a hook changes and empties, by itself or by methods that steps do not come through."""
    stepping, mine = reached(bodies, STEPS), _body(hook)
    read = {n for method in bodies if method.name in stepping for n in _read(method)}
    helping = reached([*mine, *bodies], {method.name for method in mine}) - stepping
    own = [*mine, *(method for method in bodies if method.name in helping)]
    training = not name.startswith(_BEHIND)
    changed = [n for method in own for n in _assigned(method) if n in read and training]
    changed += [n for method in own for n in (*_settings(method), *_written(method, read)) if training]
    emptied = [n for method in own for n in _emptied(method) if n in read]
    return Uncalled(name, line_of(hook), tuple(dict.fromkeys(changed)), tuple(dict.fromkeys(emptied)))


def _body(function: Any) -> list[ast.FunctionDef]:
    """The text of a function as a tree; none of what is not written in a file."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return []
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _read(method: ast.FunctionDef) -> set[str]:
    own = names_of_self(method)
    loaded = (n for n in ast.walk(method) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    return {of_self(n, own) for n in loaded} - {""}


def _assigned(method: ast.FunctionDef) -> Iterator[str]:
    """The object's own attributes that a method gives something new, `self.rate` of `self.rate["a"] = 1` too."""
    own = names_of_self(method)
    for target, value in _assignments(method):
        node: ast.AST = target
        while isinstance(node, ast.Attribute | ast.Subscript) and not of_self(node, own):
            node = node.value
        if of_self(node, own) and not _is_empty(value):
            yield of_self(node, own)


def _settings(method: ast.FunctionDef) -> Iterator[str]:
    """What a method freezes or sets on whatever object."""
    if any(isinstance(target, ast.Attribute) and target.attr == _FROZEN for target, _ in _assignments(method)):
        yield _FROZEN
    for node in ast.walk(method):
        called = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if called is None or called.attr not in _SETTING:
            continue
        if called.attr not in _MODES or not _of_optimizers(called.value, method):  # whose modes laptime sets itself
            yield f"{ast.unparse(called)}()"


def _of_optimizers(node: ast.AST, method: ast.FunctionDef) -> bool:
    """Whether it is an optimizer of the module's: `self.optimizers()`, or a name that was given to one."""
    named = [(n.targets, n.value) for n in ast.walk(method) if isinstance(n, ast.Assign)]
    named += [([n.target], n.iter) for n in ast.walk(method) if isinstance(n, ast.For)]
    root = _root(node)
    behind = [value for targets, value in named if root and root in {_root(target) for target in targets}]
    return any(isinstance(n, ast.Attribute) and n.attr == "optimizers" for v in (node, *behind) for n in ast.walk(v))


def _written(method: ast.FunctionDef, read: set[str]) -> Iterator[str]:
    """What a method writes in place to what steps read: weights, options of layers, rates of the optimizer."""
    own, parts = names_of_self(method), _parts(method, read)
    for target, _ in _assignments(method):
        index = target.slice if isinstance(target, ast.Subscript) else None
        rate = isinstance(index, ast.Constant) and index.value in _OF_GROUPS
        option = isinstance(target, ast.Attribute) and target.attr != _FROZEN
        if (rate or option) and _root(target) in parts:
            yield ast.unparse(target)
    for call in (node for node in ast.walk(method) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func).rpartition(".")[2]
        in_place = name.endswith("_") and not name.startswith("_") and name not in _SETTING
        written = [*([call.func] if in_place or name in _WRITING else []), *(call.args if in_place else [])]
        whole = of_self(call.func, own) in _WRITING or (name == "setattr" and _root(call.args[0]) in {*own, *parts})
        if whole or any(_root(node) in parts or _first(node, own) in read | _HOLDING for node in written):
            yield f"{ast.unparse(call.func)}()"


def _parts(method: ast.FunctionDef, read: set[str]) -> set[str]:
    """The names that a method gives to parts of what steps read: `for layer in self.modules()`."""
    own, found = names_of_self(method), set[str]()
    for node in ast.walk(method):
        if isinstance(node, ast.For | ast.Assign):
            targets, value = ([node.target], node.iter) if isinstance(node, ast.For) else (node.targets, node.value)
            held = {of_self(n, own) or getattr(n, "attr", "") for n in ast.walk(value)} & (read | _HOLDING)
            if held or any(isinstance(n, ast.Name) and n.id in found for n in ast.walk(value)):
                found |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)} - own
    return found


def _root(node: ast.AST) -> str:
    """The name that a chain of attributes, indices and calls begins with; empty for anything else."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _first(node: ast.AST, own: set[str]) -> str:
    """The object's own attribute that a chain goes through first."""
    return next((name for n in ast.walk(node) if (name := of_self(n, own))), "")


def _emptied(method: ast.FunctionDef) -> Iterator[str]:
    """The object's own lists that a method empties."""
    own = names_of_self(method)
    yield from (of_self(target, own) for target, value in _assignments(method) if _is_empty(value))
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clear":
            yield of_self(node.func.value, own)


def _assignments(method: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """What is written to and what is written; None where each of several has a part of it."""
    for node in ast.walk(method):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from ((part, getattr(node, "value", None) if len(parts) == 1 else None) for part in parts)


def _is_empty(value: ast.AST | None) -> bool:
    made = isinstance(value, ast.Call) and not value.args and ast.unparse(value.func) in ("list", "dict", "set")
    return made or (isinstance(value, ast.List) and not value.elts) or (isinstance(value, ast.Dict) and not value.keys)
