"""Plain numbers that a user's code counts in attributes, a step for an annealed weight say: kept and put back.

They move with each step, in the warm-up too, and are no tensors that a net's state holds. So does whether a parameter
is trained, where a loss unfreezes layers after some steps.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode

Numbers = list[tuple[Any, dict[str, Any]]]
"""Objects, each with the numbers among its attributes."""


def numbers_of(*owners: Any) -> Numbers:
    """The numbers that objects hold now, of a net those of each of its modules and parameters."""
    parts: list[Any] = []
    for owner in owners:
        parts += [*owner.modules(), *owner.parameters()] if isinstance(owner, nn.Module) else [owner]
    return [(part, plain_numbers(part)) for part in parts if hasattr(part, "__dict__")]


def plain_numbers(owner: Any) -> dict[str, Any]:
    """The numbers among an object's own attributes; of a parameter whether it is trained."""
    if isinstance(owner, nn.Parameter):
        return {"requires_grad": owner.requires_grad}
    return {name: value for name, value in vars(owner).items() if isinstance(value, int | float)}


def put_back_numbers(kept: Numbers) -> None:
    """Puts numbers where they were; one that has hidden its class's since then goes."""
    for owner, numbers in kept:
        if isinstance(owner, nn.Parameter):
            owner.requires_grad_(numbers["requires_grad"])
            continue
        for name in plain_numbers(owner).keys() - numbers.keys():
            if hasattr(type(owner), name):
                del owner.__dict__[name]
        owner.__dict__.update(numbers)


def changed(kept: Numbers) -> tuple[str, ...]:
    """The names of numbers that are others now, each once."""
    found = [(numbers, plain_numbers(owner)) for owner, numbers in kept]
    names = (name for was, now in found for name in now if repr(was.get(name)) != repr(now[name]))  # nan is itself
    return tuple(dict.fromkeys(names))


@contextlib.contextmanager
def untouched(owner: Any) -> Iterator[None]:
    """Within it an object may get other attributes and more in its lists; behind it it has what it had before.

    For passes on shapes alone: a mean that a loss keeps of its scores would be a tensor without a value, and so would
    the weights of a net that it holds and moves to the device of its batch.
    """
    own = getattr(owner, "__dict__", {})
    kept = dict(own)
    parts = [part for net in kept.values() if isinstance(net, nn.Module) for part in net.modules()]
    places: list[Any] = [place for part in parts for place in (part._parameters, part._buffers)]
    placed = [(place, dict(place)) for place in places if isinstance(place, dict)]  # torch.jit has others
    own.update({name: copy.copy(value) for name, value in kept.items() if isinstance(value, list | dict | set | deque)})
    try:
        yield
    finally:
        for name in own.keys() - kept.keys():
            del own[name]
        own.update(kept)
        for place, before in placed:
            place.update(before)


class Unwritten(TorchDispatchMode):
    """Within it operations may write over any tensor, whoever holds it; behind it each has the values of before.

    Their schemas say what they write to, but for the running statistics of BatchNorm. Of each memory a copy is taken
    before its first write.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._before: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, behind a copy of what it is about to write to."""
        arguments, named = func._schema.arguments, dict(kwargs or {})
        named.update(zip((argument.name for argument in arguments), args, strict=False))
        for argument in arguments:
            if (argument.alias_info and argument.alias_info.is_write) or argument.name.startswith("running_"):
                given = named.get(argument.name)
                for written in given if isinstance(given, list | tuple) else [given]:
                    self._keep(written)
        return func(*args, **(kwargs or {}))

    def _keep(self, written: object) -> None:
        if isinstance(written, Tensor) and written.layout == torch.strided and not written.is_meta:
            storage = written.untyped_storage()
            if storage._cdata not in self._before:
                self._before[storage._cdata] = (storage, storage.clone())

    def __exit__(self, *error: Any) -> None:
        """Ends it."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for storage, before in self._before.values():
            if storage.nbytes() == before.nbytes():
                storage.copy_(before)
        self._before = {}
