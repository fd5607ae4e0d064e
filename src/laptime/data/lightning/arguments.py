"""What a user's file gives a Trainer: by name, in a dictionary, in a list that is made before."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_MAKERS = ("Trainer", "LightningCLI")
_DEFAULTS = "trainer_defaults"


def arguments_of(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What calls of Trainer and its fit(), a command line's defaults and a module's own callbacks say by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (*_MAKERS, "fit"):
            for name, value in _named(tree, node):
                yield name, value
                if name == _DEFAULTS:
                    yield from _items(tree, value)
        elif isinstance(node, ast.FunctionDef) and node.name == "configure_callbacks":
            given = (n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None)
            yield from (("callbacks", value) for value in given)


def made_in(tree: ast.AST, value: ast.expr, depth: int = 3) -> Iterator[ast.expr]:
    """The elements of a list, by whatever name, with what is appended to that."""
    if isinstance(value, ast.List | ast.Tuple):
        for element in value.elts:
            yield from made_in(tree, element, depth)
    elif isinstance(value, ast.BinOp):
        yield from (*made_in(tree, value.left, depth), *made_in(tree, value.right, depth))
    elif isinstance(value, ast.Name) and depth:
        for given in (*_given(tree, value.id), *_appended(tree, value.id)):
            yield from made_in(tree, given, depth - 1)
    else:
        yield value


def _named(tree: ast.AST, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for keyword in call.keywords:
        if keyword.arg is None:
            yield from _items(tree, keyword.value)
        else:
            yield keyword.arg, keyword.value


def _items(tree: ast.AST, value: ast.expr, depth: int = 3) -> Iterator[tuple[str, ast.expr]]:
    """Keys and values of a dictionary that is written out, by whatever name."""
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        yield from ((str(key.value), given) for key, given in pairs if isinstance(key, ast.Constant))
    elif isinstance(value, ast.Call) and ast.unparse(value.func) == "dict":
        yield from ((k.arg, k.value) for k in value.keywords if k.arg)
    elif isinstance(value, ast.Name) and depth:
        for given in _given(tree, value.id):
            yield from _items(tree, given, depth - 1)


def _given(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a file gives a name."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        value = getattr(node, "value", None)
        if value is not None and any(isinstance(target, ast.Name) and target.id == name for target in targets):
            yield value


def _appended(tree: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a file appends to the list of a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (f"{name}.append", f"{name}.extend"):
            yield from node.args
