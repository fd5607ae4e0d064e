"""What trains by itself: a file when it is imported, which each process does, or a function in a workload's place."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from laptime.errors import UsageError, shorten
from laptime.own.user_code import place_in

# Names of what trains by itself, as patterns, with the methods that do; Lightning's and Hugging Face's, fastai's,
# Optuna's, ignite's and skorch's.
_TRAINERS = {
    "Trainer$": ("fit", "train", "validate", "test", "predict"),
    "[Ll]earner$": ("fit", "fit_one_cycle", "fit_flat_cos", "fine_tune", "lr_find"),
    "^create_study$": ("optimize",),
    "^create_supervised_trainer$": ("run",),
    "^NeuralNet(Classifier|BinaryClassifier|Regressor)?$": ("fit", "partial_fit"),
}
_COMMAND_LINE = "LightningCLI"
# What it decorates is a whole program, with a command line of its own.
_PROGRAM = "hydra.main("
_OWN_RETURNS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LATER = (*_OWN_RETURNS, ast.If, ast.IfExp)


def refuse_what_trains(file: Path) -> None:
    """Raises UsageError, with the line, where importing a file would train: by a Trainer, LightningCLI or Hydra."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # told when it is imported
    calls = [node for node in _run(tree.body) if isinstance(node, ast.Call)]
    trainers = set(_named(tree))
    programs = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_program(node)}
    for call in calls:
        if _is_command_line(call) or ast.unparse(call.func) in programs or _trains(call, trainers):
            raise UsageError(
                f"{file.name} trains when it is imported (line {call.lineno}: {shorten(ast.unparse(call), 100)}), and "
                "each process imports it: put that behind `if __name__ == '__main__':`."
            )


def refuse_returning_nothing(maker: Any, file: Path) -> None:
    """Raises UsageError for a function that returns nothing, or a number: a script's main(), which would train here."""
    function = inspect.unwrap(maker)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):  # of a class, an object, code without a file
        return
    node = tree.body[0] if tree.body else None
    if isinstance(node, ast.FunctionDef) and not any(map(_gives, _within(node.body))):
        raise UsageError(
            f"{node.name}() of {file.name} returns no workload{place_in(file, (), (function,))}, and is not called, "
            "since it may be the training itself: laptime new FILE writes a workload that runs, whose data(), model() "
            "and loss() are to hold what yours does."
        )


def _within(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes and all within them, but for functions and classes that have returns of their own."""
    for node in nodes:
        if not isinstance(node, _OWN_RETURNS):
            yield node
            yield from _within(ast.iter_child_nodes(node))


def _gives(node: ast.AST) -> bool:
    returned = isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant)
    return returned or isinstance(node, ast.Yield | ast.YieldFrom)


def _run(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes that an import certainly runs, of functions that it calls by name too; not what stands behind an if."""
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    nodes = list(_passed(body))
    yield from nodes
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    for name in called & functions.keys():
        yield from _passed(functions[name].body)


def _passed(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes and all within them, but for what runs later or perhaps never."""
    for node in nodes:
        if not isinstance(node, _LATER):
            yield node
            yield from _passed(ast.iter_child_nodes(node))


def _is_command_line(call: ast.Call) -> bool:
    parsing = any(k.arg == "run" and ast.unparse(k.value) == "False" for k in call.keywords)
    return _last(call) == _COMMAND_LINE and not parsing


def _is_program(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).startswith(_PROGRAM) for decorator in function.decorator_list)


def _named(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that stand for a Trainer somewhere, each with the methods of it that train."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from product(names, _training(node.value))


def _trains(call: ast.Call, trainers: Collection[tuple[str, str]]) -> bool:
    """Whether a call is one of a Trainer's, that a name stands for or that is made for it: `Trainer().fit(net)`."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, method = call.func.value, call.func.attr
    return method in _training(owner) or (isinstance(owner, ast.Name) and (owner.id, method) in trainers)


def _training(node: ast.AST) -> Collection[str]:
    """The methods that train of what an expression makes; none of what is no Trainer."""
    made = _last(node) if isinstance(node, ast.Call) else ""
    return next((methods for kind, methods in _TRAINERS.items() if re.search(kind, made)), ())


def _last(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]
