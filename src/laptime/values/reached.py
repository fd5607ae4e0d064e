"""What can be reached from an object of a user's: through containers, attributes and nets, to any depth."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from itertools import islice
from types import FunctionType, MethodType, ModuleType, SimpleNamespace

import torch
from torch import Tensor

# Parts of a container that are looked into, and places in all: an index of a data set may have millions.
_FEW, _MOST = 1000, 100_000


def reached(root: object, seen: dict[int, object]) -> Iterator[object]:
    """An object and all that it holds, each once, but for texts and numbers; attributes come as their dictionary.

    What hangs on modules (globals), in classes, in slots other than a dataclass's, or in objects of Python's own
    library (a lock, a pool of threads) is not reached.

    Args:
        root: where to begin.
        seen: by id what other walks have met, which is left out; it grows.
    """
    waiting = [root]
    while waiting and len(seen) < _MOST:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | None):
            continue
        seen[id(one)] = one  # held, so that no other object gets its id
        yield one
        waiting += islice(_parts(one), _FEW)


def _parts(one: object) -> Iterable[object]:
    if isinstance(one, dict):
        return dict.values(one)  # a class of its own may load them only when it is asked
    if isinstance(one, list | tuple | set | frozenset | deque):
        return one
    if isinstance(one, torch.jit.ScriptModule):
        return (*one.parameters(), *one.buffers())
    if isinstance(one, Tensor | type | FunctionType | MethodType | ModuleType) or _of_python(one):
        return ()
    own = getattr(one, "__dict__", None)
    if isinstance(own, dict):
        return [own]
    return [getattr(one, f.name) for f in fields(one) if hasattr(one, f.name)] if is_dataclass(one) else ()


def _of_python(one: object) -> bool:
    """Whether Python's own library made it, which may hold threads and locks; a namespace holds what a user put in."""
    library = type(one).__module__.partition(".")[0] in sys.stdlib_module_names
    return library and not isinstance(one, SimpleNamespace)
