"""Which steps of a LightningModule read the number of their batch, by the text of its methods."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence

from laptime.data.lightning.refused import methods_of, names_of_self, of_self

# Of a step's parameters: the object itself, the batch, its number.
_PLACE = 2
_SUPER = "super()."
_OF_BATCHES = ("num_training_batches", "accumulate_grad_batches")

Methods = Sequence[ast.FunctionDef]


def reads_number(value: object, step: str) -> str:
    """The place of a step that reads its batch's number, itself or in methods that it hands it on to; else empty."""
    found = list(methods_of(value))
    methods = [method for _, method in found]
    place = next((place for place, method in enumerate(methods) if method.name == step), None)
    if place is None or not _reads(methods, place, _PLACE, ()):
        return ""
    return f"{found[place][0].name}, line {methods[place].lineno}"


def asks_parts(value: object) -> str:
    """What methods ask their Trainer for that counts batches, of which a step may take several; else empty."""
    asked = (n.attr for _, method in methods_of(value) for n in ast.walk(method) if isinstance(n, ast.Attribute))
    return next((f"{name} of its Trainer" for name in asked if name in _OF_BATCHES), "")


def compile_refusals(numbered: bool, asked: Container[str]) -> dict[str, str]:
    """Why a module is not compiled: what is another number in each step is a constant of what was compiled.

    torch then compiles anew until its limit of eight, and runs the rest of the training as it is.

    Args:
        numbered: whether training_step() reads its batch's number.
        asked: the numbers of the training that it has asked for in a step.
    """
    name = "batch_idx" if numbered else "global_step" if "global_step" in asked else ""
    told = f"its steps read {name}, and torch compiles them anew for each number"
    return dict.fromkeys(("compile", "compile-graphed"), told) if name else {}


def number_notes(value: object) -> tuple[str, ...]:
    """A note on the number that evaluation does not count."""
    place = reads_number(value, "validation_step")
    return (f"batch_idx is always 0 in validation_step() ({place}), which reads it",) if place else ()


def _reads(methods: Methods, place: int, at: int, seen: Sequence[int]) -> bool:
    """Whether a method does something with the parameter at a place besides handing it on to methods that do not.

    What it hands on to something else, a part of the net say, is taken for read.
    """
    method = methods[place]
    if at >= len(_parameters(method)):
        return method.args.vararg is not None  # no look at what is done with parts of it
    name, handed = _parameters(method)[at], set[int]()
    for given, to, there in _handed(methods, place, name):
        if to in seen or not _reads(methods, to, there, (*seen, place)):
            handed.add(id(given))
    return any(isinstance(n, ast.Name) and n.id == name and id(n) not in handed for n in ast.walk(method))


def _handed(methods: Methods, place: int, name: str) -> Iterator[tuple[ast.expr, int, int]]:
    """Where a method hands a name on to others of the object: the use, which method, and the parameter there."""
    own = names_of_self(methods[place])
    for call in (node for node in ast.walk(methods[place]) if isinstance(node, ast.Call)):
        whole = ast.unparse(call.func)
        called, first = of_self(call.func, own), 0
        if whole.startswith(_SUPER):
            called, first = whole.removeprefix(_SUPER), place + 1
        to = next((n for n, m in enumerate(methods) if n >= first and m.name == called), None)
        if to is None:
            continue
        names = _parameters(methods[to])
        by_name = [(k.value, names.index(k.arg)) for k in call.keywords if k.arg in names]
        pairs = [*((given, number + 1) for number, given in enumerate(call.args)), *by_name]
        yield from ((given, to, at) for given, at in pairs if isinstance(given, ast.Name) and given.id == name)


def _parameters(method: ast.FunctionDef) -> list[str]:
    return [a.arg for a in (*method.args.posonlyargs, *method.args.args)]
