"""Hooks that code of a user's own sets on a net's weights and modules each time that it makes an optimizer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from torch import nn

T = TypeVar("T")
Hooks = OrderedDict[int, Any]

_OF_WEIGHTS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

# By net what was set last; weakly, since a hook may know the net.
_SET: WeakKeyDictionary[nn.Module, list[tuple[ref[Hooks], int]]] = WeakKeyDictionary()


def hooked_once(model: nn.Module, make: Callable[[], T]) -> T:
    """What `make` gives, behind taking away the hooks that it has set on this net the last time."""
    for known, key in _SET.pop(model, ()):
        hooks = known()
        if hooks is not None:
            hooks.pop(key, None)
    before = {(id(hooks), key) for hooks in _hooks(model) for key in hooks}
    made = make()
    _SET[model] = [(ref(hooks), key) for hooks in _hooks(model) for key in hooks if (id(hooks), key) not in before]
    return made


def has_set_hooks(model: nn.Module) -> bool:
    """Whether the last call has set some on this net."""
    return bool(_SET.get(model))


def _hooks(model: nn.Module) -> Iterator[Hooks]:
    """All hooks of a net, in the dictionaries that hold them."""
    for owners, names in ((model.parameters(), _OF_WEIGHTS), (model.modules(), _OF_MODULES)):
        for owner in owners:
            yield from filter(None, (getattr(owner, name, None) for name in names))
