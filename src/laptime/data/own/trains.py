"""A file that trains by somebody's Trainer when it is imported: found before, since each process imports it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from laptime.errors import UsageError, shorten

_TRAINING = ("fit", "train", "validate", "test", "predict")
_COMMAND_LINE = "LightningCLI"
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.If, ast.IfExp)


def refuse_what_trains(file: Path) -> None:
    """Raises UsageError where importing a file would run a Trainer or Lightning's command line, with the line."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # told when it is imported
    calls = [node for node in _run(tree.body) if isinstance(node, ast.Call)]
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_trainer(node.value)]
    trainers = {target.id for node in made for target in node.targets if isinstance(target, ast.Name)}
    for call in calls:
        if _is_command_line(call) or _trains(call, trainers):
            raise UsageError(
                f"{file.name} trains when it is imported (line {call.lineno}: {shorten(ast.unparse(call), 100)}), and "
                "each process imports it: put that behind `if __name__ == '__main__':`."
            )


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


def _trains(call: ast.Call, trainers: set[str]) -> bool:
    """Whether a call is one of a Trainer's, that a name stands for or that is made for it: `Trainer().fit(net)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _TRAINING:
        return False
    owner = call.func.value
    return _is_trainer(owner) or (isinstance(owner, ast.Name) and owner.id in trainers)


def _is_trainer(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last(node).endswith("Trainer")


def _last(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]
