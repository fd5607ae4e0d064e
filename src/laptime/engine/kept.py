"""What a user's object holds, as it was before a comparison: each side of it begins with that, and so does the run."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from operator import is_
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from laptime.data.lightning.module import LightningWorkload
from laptime.values.reached import reached

# Bytes of which copies are taken, the smallest attributes first: they take time and memory, and no whole data set is
# copied.
_SMALL = 2**28
_CONTAINERS = (dict, list, set, deque)


class Kept:
    """What can be reached from a user's object through containers, objects and nets, with copies of tensors and arrays.

    A step leaves a recurrent net's last state there, say, or writes to a queue or a teacher, through `.data` too, which
    counts no version: so copies are compared. They are taken once for all sides. What `reached` does not come to stays
    as it is left.

    Args:
        owner: the user's object; None for nothing to keep. Of a LightningModule nothing is kept: each side makes its
            own, which keeps such things in itself.
        net: one of which what it holds beside weights and buffers is kept, too; None for none.
        apart: what is left out with all that it holds, data above all.
        modules: the user's own of which globals are kept, too.
    """

    def __init__(
        self,
        owner: object | None,
        net: nn.Module | None = None,
        apart: Iterable[object] = (),
        modules: Iterable[ModuleType] = (),
    ) -> None:
        self._containers: list[tuple[Any, Any]] = []
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._large: list[tuple[str, list[tuple[Tensor, int]]]] = []
        self._globals = [(vars(module), _known(vars(module))) for module in modules]
        seen = dict[int, object]()
        for one in (*apart, *(() if net is None else (*net.parameters(), *net.buffers()))):
            deque(reached(one, seen), 0)
        seen[id(owner)] = owner
        held: list[Any] = [vars(part) for part in (() if net is None else net.modules())]
        if not isinstance(owner, LightningWorkload):
            held.append(getattr(owner, "__dict__", None))
        found = list[tuple[str, list[Tensor]]]()
        for own in held:
            if isinstance(own, dict) and id(own) not in seen:
                self._containers.append((own, dict(own)))
                seen[id(own)] = own
                found += [(name, list(self._walked(value, seen))) for name, value in own.items()]
        for _, known in self._globals:
            found += [(name, list(self._walked(value, seen))) for name, value in known.items()]
        self._copy(found)

    def _copy(self, found: list[tuple[str, list[Tensor]]]) -> None:
        """Takes copies of what attributes hold, as far as there is room; versions of the rest."""
        room = _SMALL
        for name, tensors in sorted(found, key=lambda pair: _size(pair[1])):
            room -= _size(tensors)
            if room >= 0:
                self._copies += [(t, t.detach().to("cpu", copy=True)) for t in tensors]
            else:
                self._large.append((name, [(t, t._version) for t in tensors]))

    def _walked(self, value: object, seen: dict[int, object]) -> Iterator[Tensor]:
        """The tensors of an attribute that a step may write to; notes the containers on the way to them."""
        for one in reached(value, seen):
            if isinstance(one, _CONTAINERS):
                self._containers.append((one, _like(one)))
            elif isinstance(one, Tensor) and _writable(one):
                yield one
            elif type(one) is np.ndarray and (shown := _as_tensor(one)) is not None:
                yield shown

    @torch.no_grad()
    def back(self) -> None:
        """Puts all of it back where a step has left something else."""
        for container, was in self._containers:
            if not _same(container, was):
                _refill(container, was)
        for names, was in self._globals:
            _set_globals(names, was)
        for tensor, copied in self._copies:
            # Nothing is written to one that shows a value in several places; one may have gone to a GPU.
            if _differs(tensor, copied):
                tensor.copy_(copied)

    def moved(self) -> bool:
        """Whether a step has left anything else there, as far as copies and versions tell."""
        same = all(_same(*pair) for pair in self._containers)
        same = same and all(_same(_known(names), was) for names, was in self._globals)
        return not same or bool(self.lost()) or any(_differs(*pair) for pair in self._copies)

    def written(self) -> bool:
        """Whether tensors hold other values there, or attributes and entries other tensors, as far as copies tell."""
        pairs = [*self._containers, *self._globals]
        return any(_differs(*pair) for pair in self._copies) or any(_replaced(*pair) for pair in pairs)

    def graphs(self) -> bool:
        """Whether tensors there hold a step's graph, which takes memory as long as they are held."""
        large = (t for _, tensors in self._large for t, _ in tensors)
        return any(t.grad_fn is not None for t in (*(t for t, _ in self._copies), *large))

    def lost(self) -> tuple[str, ...]:
        """Attributes that were too large for a copy and have been written to, as far as their versions tell."""
        found = (name for name, large in self._large if any(t._version != was for t, was in large))
        return tuple(dict.fromkeys(found))


def _writable(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not (is_lazy(tensor) or tensor.is_inference() or tensor.is_meta)


def _size(tensors: list[Tensor]) -> int:
    return sum(t.nbytes for t in tensors)


def _differs(tensor: Tensor, copied: Tensor) -> bool:
    return tensor.shape == copied.shape and not torch.equal(tensor, copied.to(tensor.device))


def _as_tensor(array: Any) -> Tensor | None:
    """An array's memory as a tensor; None of one that can't be written to, or of what torch has no type for."""
    if not array.flags.writeable:
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        return None


def _known(names: dict[str, Any]) -> dict[str, Any]:
    """A module's globals but for Python's own."""
    return {name: value for name, value in names.items() if not name.startswith("__")}


def _set_globals(names: dict[str, Any], was: dict[str, Any]) -> None:
    """Puts globals back one by one, since a loader's threads may look others up meanwhile."""
    for name in _known(names).keys() - was.keys():
        del names[name]
    for name, value in was.items():
        if name not in names or names[name] is not value:
            names[name] = value


def _like(one: Any) -> Any:
    """The same parts in a plain container, whatever class of the user's it is, of which no method is asked."""
    kind: Any = next(kind for kind in _CONTAINERS if isinstance(one, kind))
    return dict(dict.items(one)) if kind is dict else kind(one)


def _same(one: Any, was: Any) -> bool:
    """Whether a container has the very parts that it had."""
    count = dict.__len__(one) if isinstance(one, dict) else len(one)
    return count == len(was) and all(map(is_, _flat(one), _flat(was)))


def _replaced(one: Any, was: Any) -> bool:
    """Whether a container has another tensor, or another container of some, where it had one."""
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(was, dict):
        pairs = ((value, dict.get(one, name)) for name, value in was.items())
    elif not isinstance(was, set) and len(one) == len(was):
        pairs = zip(was, one, strict=True)
    return any(now is not value and _holds_tensors(value) and _holds_tensors(now) for value, now in pairs)


def _holds_tensors(one: object) -> bool:
    parts = dict.values(one) if isinstance(one, dict) else one if isinstance(one, list | tuple) else [one]
    return any(isinstance(part, Tensor) for part in parts)


def _flat(one: Any) -> Iterable[object]:
    return (part for pair in dict.items(one) for part in pair) if isinstance(one, dict) else one


def _refill(one: Any, was: Any) -> None:
    """Puts parts back by the plain class's own methods: those of a user's may refuse it, or count."""
    if isinstance(one, list):
        list.__setitem__(one, slice(None), was)
        return
    kind: Any = next(kind for kind in (OrderedDict, dict, set, deque) if isinstance(one, kind))
    kind.clear(one)
    (kind.extend if kind is deque else kind.update)(one, was)
