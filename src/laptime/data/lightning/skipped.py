"""Batches that training_step() skips by returning None: under Lightning's Trainer no weight moves, all else counts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from laptime.data.lightning.refused import methods_of, names_of_self, of_self

_STEP = "training_step"
_SUPER = "super()."


def skipping(value: object) -> str:
    """Where training_step() says that it skips a batch, itself or by what it returns of another method; else empty."""
    methods = list(methods_of(value))
    found, seen = [place for place, (_, m) in enumerate(methods) if m.name == _STEP][:1], set[int]()
    skipped, given = "", False
    while found:
        seen.add(at := found.pop(0))
        file, method = methods[at]
        for returned in _returns(method):
            if any(isinstance(v, ast.Constant) and v.value is None for v in _branches(returned.value)):
                skipped = skipped or f"{file.name}, line {returned.lineno}"
            given |= any(not isinstance(v, ast.Constant) for v in _branches(returned.value))
            found += [to for to in _handed_on(methods, at, returned) if to not in seen]
    return skipped if given else ""


def skip_refusals(place: str) -> dict[str, str]:
    """Why optimizations are not for a module that skips batches at a place; none where that is empty."""
    if not place:
        return {}
    told = f"training_step() may skip a batch ({place})"
    return {
        "graph": f"{told}, and a replayed step runs no Python that could",
        "fp16": f"{told}, and its loss's scale follows gradients, of which there are none then",
        "whole-batch": f"{told}, which it decides for each part of one",
        **dict.fromkeys(("ddp", "flat-reduce"), f"{told}, and ranks decide that each for its part"),
    }


def skip_notes(place: str) -> tuple[str, ...]:
    """What a comparison says of batches that are skipped at a place; nothing where that is empty."""
    told = f"where training_step() returns None ({place}) its batch is skipped: its loss counts as 0"
    told += ", as does its accuracy where it logs none"
    return (told,) if place else ()


def _returns(method: ast.FunctionDef) -> Iterator[ast.Return]:
    """Those of a method, and not of functions within it."""
    inside: list[ast.AST] = list(method.body)
    while inside:
        node = inside.pop(0)
        if isinstance(node, ast.Return):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.AsyncFunctionDef):
            inside += ast.iter_child_nodes(node)


def _branches(value: ast.expr | None) -> list[ast.expr]:
    """What is returned, either way of `a if b else c`."""
    if isinstance(value, ast.IfExp):
        return [*_branches(value.body), *_branches(value.orelse)]
    return [ast.Constant(None) if value is None else value]


def _handed_on(methods: list[tuple[Path, ast.FunctionDef]], at: int, returned: ast.Return) -> Iterator[int]:
    """The methods whose value a method returns as it is."""
    own = names_of_self(methods[at][1])
    for call in (v for v in _branches(returned.value) if isinstance(v, ast.Call)):
        whole = ast.unparse(call.func)
        above = whole.startswith(_SUPER)
        name, first = (whole.removeprefix(_SUPER), at + 1) if above else (of_self(call.func, own), 0)
        yield from [n for n, (_, m) in enumerate(methods) if n >= first and m.name == name][:1]
