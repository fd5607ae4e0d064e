"""What a LightningModule does that only Lightning's own Trainer can follow: found before it trains, named by line."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from laptime.data.lightning.told import OF_TRAINER, Body, only_told
from laptime.data.lightning.trainer import Running, StandIn
from laptime.errors import UsageError

PACKAGES = ("lightning", "pytorch_lightning")
_MANUAL = "it steps its optimizers by hand, as GANs do"
_SEVERAL = ", several nets in one loss (docs/own-workload.md, Several nets)"
_OPTIMIZERS = "only Lightning's Trainer knows them, for steps by hand or to log the rate"
_TRAINER = "outside of Lightning's Trainer there is none"
_OWNER, _LOADER = "trainer", "train_dataloader"
# What a step may ask of it all the same; its loader's length is another where the batch is larger, and of optimizers
# it may only tell.
_ASKED = {name for name in dir(Running) if not name.startswith("_")} - {_LOADER, *OF_TRAINER}
# Attributes of a module that only a Trainer fills, each with what is told of it.
_TOUCHED = {
    "trainer": _TRAINER,
    "_trainer": _TRAINER,
    "fabric": _TRAINER,
    "all_gather": _TRAINER,
    "optimizers": _OPTIMIZERS,
    "manual_backward": _MANUAL,
    "toggle_optimizer": _MANUAL,
    "untoggle_optimizer": _MANUAL,
    "clip_gradients": _MANUAL,
    "lr_schedulers": _OPTIMIZERS,
}
STEPS = ("training_step", "validation_step", "forward")
# What is as often logged as it is needed.
_ONLY_TOLD = ("optimizers", "lr_schedulers", "trainer", "_trainer")
# None without a Trainer, for which a step may ask before it writes there.
_LOGGER = "logger"
# Hooks that change a step or a batch, each with what does their work here; those at other places are left out with a
# note.
_BATCH = "do its work in the data set, or at the beginning of training_step() and validation_step()"
_ONLY_LOGS = "leave it out where it only logs"
_LOGGED = "leave it out where it only logs; what changes gradients needs a plain workload (laptime new)"
_CLIPPED = "give the module an attribute clip_norm instead, the largest norm of the gradient"
_STEPPED = "leave it out where it does what Lightning does; another step needs a plain workload (laptime new)"
_STEP_HOOKS = {
    **dict.fromkeys(("backward", "optimizer_zero_grad"), _STEPPED),
    "optimizer_step": f"give a schedule with interval 'step' where it sets the rate, {_STEPPED}",
    "configure_gradient_clipping": _CLIPPED,
    "lr_scheduler_step": "leave it out where it only calls scheduler.step(), and give a schedule that needs no more",
    **dict.fromkeys(("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer"), _BATCH),
    "on_train_batch_start": f"do its work at the beginning of training_step(), or {_ONLY_LOGS}",
    "on_train_batch_end": f"do its work at the beginning of training_step(), behind the step before, or {_ONLY_LOGS}",
    "on_before_zero_grad": f"do its work at the end of training_step(), which it follows, or {_ONLY_LOGS}",
    **dict.fromkeys(("on_before_backward", "on_after_backward", "on_before_optimizer_step"), _LOGGED),
    "configure_sharded_model": "make the net in __init__() or configure_model()",
}
# What laptime reads of a module besides.
_READ = ("clip_norm", "micro_batch_size")
_NEVER_CALLED = ("test_step", "predict_step", "predict_dataloader", "teardown", "configure_callbacks", "on_")


def is_lightning(value: object, name: str) -> bool:
    """Whether a value is Lightning's class of a name, one below it, or an object of such; imports nothing."""
    return any(c.__name__ == name and _theirs(c) for c in _kind(value).__mro__)


def overridden(value: object, name: str) -> Any:
    """The method of the user's that takes the place of one of Lightning's; None where there is none.

    An object may have its own, as those of `LightningDataModule.from_datasets` do.
    """
    if not isinstance(value, type) and name in vars(value):
        return vars(value)[name]
    owner = next((c for c in _kind(value).__mro__ if name in vars(c)), None)
    return None if owner is None or _theirs(owner) or owner is object else vars(owner)[name]


def line_of(function: Any) -> str:
    """Where a function of the user's begins: `lit.py, line 12`."""
    code = getattr(function, "__code__", None)
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno}" if code else "a line that is not known"


def refuse_what_needs_a_trainer(value: object, file: Path) -> None:
    """Raises UsageError for what can't be had without the Trainer: hooks of the step, optimizers by hand, its state."""
    name = _kind(value).__name__
    if not getattr(value, "automatic_optimization", True):  # before what such steps use, whose remedies are others
        raise UsageError(
            f"{name} of {file.name} switches automatic optimization off, so {_MANUAL}, and laptime steps one: write "
            f"its training as a plain workload (laptime new){_SEVERAL}."
        )
    for hook, instead in _STEP_HOOKS.items():
        function = overridden(value, hook)
        if function is not None:
            raise UsageError(
                f"{name} has {hook}() ({line_of(function)}), which only Lightning's Trainer calls: {instead}."
            )
    for asked, place in _touched(value):
        why = _TOUCHED.get(asked.partition(".")[0], _TRAINER)
        raise UsageError(f"{name} uses self.{asked} ({place}), but {why}: {_instead(asked)}.")


def _instead(asked: str) -> str:
    """What does the work of what only a Trainer fills."""
    attribute = asked.partition(".")[0]
    if attribute == _LOGGER:
        return "leave the line out, or ask for `self.logger` before it"
    if asked == f"{_OWNER}.{_LOADER}":
        return f"for the number of its batches ask self.{_OWNER}.num_training_batches"
    remedy = "write its training as a plain workload (laptime new)"
    if _TOUCHED.get(attribute) in (_MANUAL, _OPTIMIZERS):
        remedy += _SEVERAL
    return f"leave the line out where it only logs, else {remedy}" if attribute in _ONLY_TOLD else remedy


def _touched(value: object) -> Iterator[tuple[str, str]]:
    """Attributes that a Trainer fills, in methods that are called, with their places."""
    methods = list(methods_of(value))
    bodies = [method for _, method in methods]
    stepping, called = reached(bodies, STEPS), reached(bodies, _asked_for(value, bodies))
    asking = [Body(method, names_of_self(method)) for method in bodies if method.name in stepping]
    told = {id(node) for node in only_told(asking, STEPS)}
    for file, method in (pair for pair in methods if pair[1].name in called):
        own = names_of_self(method)
        asked = {of_self(n, own) for test in _tests(method) for n in ast.walk(test)}
        nodes = [n for n in ast.walk(method) if isinstance(n, ast.Attribute)]
        there = told | _asked_in_steps(nodes, own) if method.name in stepping else _stood_in_for(nodes, own)
        for node in nodes:
            name, through = of_self(node, own), of_self(node.value, own)
            through_it = next((f".{n.attr}" for n in nodes if n.value is node and name == _OWNER), "")
            if (name in _TOUCHED and id(node) not in there) or (through == _LOGGER and _LOGGER not in asked):
                yield f"{name}{through_it}" if name in _TOUCHED else _LOGGER, f"{file.name}, line {node.lineno}"


def _asked_for(value: object, methods: Sequence[ast.FunctionDef]) -> set[str]:
    """The names of methods that Lightning's and torch's classes have, too: others are called by these alone."""
    theirs = {name for kind in _kind(value).__mro__ if _theirs(kind) for name in dir(kind)}
    return {method.name for method in methods if method.name in theirs or method.name in _READ}


def reached(methods: Sequence[ast.FunctionDef], start: Iterable[str]) -> set[str]:
    """The names of methods that some come through, and theirs: steps, while which nothing stands in for the Trainer."""
    found, new = set[str](), set(start)
    while new:
        found |= new
        bodies = [m for m in methods if m.name in new]
        new = {of_self(n, names_of_self(m)) for m in bodies for n in ast.walk(m)} - found - {""}
    return found


def _stood_in_for(nodes: Sequence[ast.Attribute], own: set[str]) -> set[int]:
    """By their ids uses of the Trainer while a training is set up: by itself, or for what the stand-in has too."""
    others = {id(n.value) for n in nodes if of_self(n.value, own) == _OWNER and not hasattr(StandIn, n.attr)}
    return {id(n) for n in nodes if of_self(n, own) == _OWNER} - others


def _asked_in_steps(nodes: Sequence[ast.Attribute], own: set[str]) -> set[int]:
    """By their ids uses of the Trainer in a step for what stands there as well."""
    return {id(n.value) for n in nodes if of_self(n.value, own) == _OWNER and n.attr in _ASKED}


def names_of_self(method: ast.FunctionDef) -> set[str]:
    """What a method calls its own object: its first argument, and names that are given to it (`module = self`)."""
    found = {a.arg for a in (*method.args.posonlyargs, *method.args.args)[:1]}
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in found:
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def of_self(node: ast.AST, own: set[str]) -> str:
    """The name of an attribute of the object itself, by one of its names; empty for anything else."""
    mine = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in own
    return node.attr if mine and isinstance(node, ast.Attribute) else ""


def _tests(method: ast.FunctionDef) -> Iterator[ast.AST]:
    """The conditions in a method."""
    for node in ast.walk(method):
        if isinstance(node, ast.If | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            yield node.values[0]


def methods_of(value: object) -> Iterator[tuple[Path, ast.FunctionDef]]:
    """The methods that are called, with their files: of classes in other files, too; not those that others replace."""
    hidden: set[str] = set()
    for kind in _kind(value).__mro__:
        file = None if _theirs(kind) else getattr(sys.modules.get(kind.__module__), "__file__", None)
        mine = list(_defined(Path(file), kind.__name__)) if file else []
        yield from ((Path(str(file)), m) for m in mine if m.name not in hidden)
        hidden |= {m.name for m in mine if not any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(m))}


def _defined(file: Path, name: str) -> Iterator[ast.FunctionDef]:
    """The methods of a class, wherever in its file it stands, but for those that are never called."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith(_NEVER_CALLED):
                    yield part


def _kind(value: object) -> type:
    return value if isinstance(value, type) else type(value)


def _theirs(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in (*PACKAGES, "torch", "builtins", "abc")
