"""Batches as users nest them: tensors in tuples, lists, dictionaries and dataclasses, to any depth.

An object of another class that has `to(device)`, as batches of graphs and of texts have, is moved by that, and what its
attributes hold is seen but never cut, since what else it keeps of its samples is not known. Dictionaries and
dataclasses that hold all their tensors to one `batch_size`, as tensordict's do, get the one of what they come to hold.

What is none of these (a text, a number) is left as it is. torch.utils._pytree does the same, but is private and does
not know the dictionary-like classes of tokenizers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

# What objects of others call the number of their samples: torch_geometric's, and those of DGL and torchtext.
_COUNTED = ("num_graphs", "batch_size")
# Names and numbers, of which a batch holds a list for its samples, or one for all of them.
_PLAIN = (str, bytes, int, float)

Tree = Any
"""A tensor, a tuple, list, dictionary or dataclass of trees, or anything else."""


def mapped(tree: Tree, change: Callable[[Tensor], Tensor], above: tuple[int, ...] = ()) -> Tree:
    """The same nesting with every tensor changed; `above` are objects around it, which their parts may hold."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, Mapping) or sized(tree):
        parts = tree if isinstance(tree, Mapping) else held(tree)
        return _filled(tree, {name: mapped(value, change, above) for name, value in parts.items()})
    if isinstance(tree, PackedSequence):  # of which the numbers that say how it is packed stay on the CPU
        return PackedSequence(change(tree.data), tree.batch_sizes, *(t if t is None else change(t) for t in tree[2:]))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(v, change, above) for v in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(v, change, above) for v in tree)
    if id(tree) in above:
        return tree
    # By copy, whatever its constructor does.
    fresh: Tree = copy.copy(tree) if is_dataclass(tree) or movable(tree) else tree
    within = (*above, id(tree), id(fresh))
    for name, value in {**held(fresh), **kept(fresh)}.items():
        object.__setattr__(fresh, name, mapped(value, change, within))  # it may be frozen
    return fresh


def sized(tree: Tree) -> bool:
    """Whether it refuses tensors that are not of its `batch_size`: tensordict's dictionaries and classes.

    Its class is asked first, since dictionaries that give their entries as attributes may raise anything.
    """
    known = (isinstance(tree, Mapping) or is_dataclass(tree)) and hasattr(type(tree), "batch_size")
    return known and isinstance(tree.batch_size, torch.Size)


def _filled(tree: Tree, parts: dict[Any, Tree]) -> Tree:
    """A copy of a dictionary, or of what is sized, with other values under its names."""
    fresh: Any = copy.copy(tree)  # keeps the class, whatever its constructor takes
    if not sized(tree):
        fresh.update(parts)
        return fresh
    fresh.batch_size = torch.Size()  # which holds tensors of any shape
    for name, value in parts.items():
        if isinstance(tree, Mapping):
            fresh[name] = value
        else:
            setattr(fresh, name, value)
    common = {t.shape[: len(tree.batch_size)] for t in tensors(parts)}
    if len(common) == 1:
        fresh.batch_size = common.pop()
    return fresh


def movable(tree: Tree) -> bool:
    """Whether it is an object of a class that only its own `to(device)` moves: no dataclass, no net."""
    known = isinstance(tree, Tensor | Mapping | PackedSequence | tuple | list | nn.Module | type) or is_dataclass(tree)
    return not known and callable(getattr(type(tree), "to", None))


def kept(tree: Tree) -> dict[str, Tree]:
    """The attributes of an object that is movable by name; nothing of anything else."""
    return dict(getattr(tree, "__dict__", {})) if movable(tree) else {}


def held(tree: Tree) -> dict[str, Tree]:
    """The fields of a dataclass by name; nothing of anything else."""
    names = [f.name for f in fields(tree)] if is_dataclass(tree) and not isinstance(tree, type) else []
    return {name: getattr(tree, name) for name in names if hasattr(tree, name)}


def leaves(tree: Tree) -> list[Any]:
    """All that is neither tuple, list, dictionary nor dataclass, in order; of what is movable no part."""
    if isinstance(tree, Mapping):
        return [leaf for v in tree.values() for leaf in leaves(v)]
    if isinstance(tree, tuple | list):
        return [leaf for v in tree for leaf in leaves(v)]
    if is_dataclass(tree):
        return [leaf for v in held(tree).values() for leaf in leaves(v)]
    return [tree]


def tensors(tree: Tree) -> list[Tensor]:
    """All tensors, in order; those that movable objects hold behind the others."""
    plain = leaves(tree)
    return [*(leaf for leaf in plain if isinstance(leaf, Tensor)), *(t for leaf in plain for t in _inside(leaf))]


def _inside(tree: Tree, above: tuple[int, ...] = ()) -> list[Tensor]:
    """The tensors of a movable object, and of those that it holds."""
    if id(tree) in above:
        return []
    parts = [leaf for value in kept(tree).values() for leaf in leaves(value)]
    deeper = [t for part in parts for t in _inside(part, (*above, id(tree)))]
    return [*(part for part in parts if isinstance(part, Tensor)), *deeper]


def stored(tensor: Tensor) -> tuple[Tensor, ...]:
    """What a tensor is kept as: itself, or the indices and values of a sparse one."""
    if tensor.layout == torch.strided:
        return (tensor,)
    plain = tensor.detach().to_sparse_coo().coalesce()
    return plain.indices(), plain.values()


def listed(tree: Tree) -> int | None:
    """How many samples a batch holds that is made of lists of them; None of one that is made of tensors [B, ...].

    So torchvision's detectors take it, `(images, targets)`: images of any sizes, and a dictionary for each. A list of
    dictionaries tells it, beside which no tensor stands.
    """
    parts = list(tree.values()) if isinstance(tree, Mapping) else list(tree) if isinstance(tree, tuple | list) else []
    lists = [p for p in parts if isinstance(p, tuple | list) and p and all(isinstance(each, Mapping) for each in p)]
    return len(lists[0]) if lists and not any(isinstance(part, Tensor) for part in parts) else None


def samples(tree: Tree) -> int:
    """How many samples a batch holds: those of its lists, the first dimension of its first tensor, or its length.

    One that is a movable object says it as `num_graphs` or `batch_size`.
    """
    count = listed(tree)
    if count is not None:
        return count
    told = [getattr(tree, name, None) for name in _COUNTED] if movable(tree) else []
    counts = [number for number in told if isinstance(number, int)]
    first = next((t for t in tensors(tree) if t.dim()), None)
    return counts[0] if counts else len(tree) if first is None else len(first)


def sent(tree: Tree, device: torch.device, layout: torch.memory_format, non_blocking: bool = False) -> Tree:
    """A copy on a device, where it is not there already; images [B, C, H, W] come in the layout."""

    def move(tensor: Tensor) -> Tensor:
        kept = layout if tensor.dim() == 4 and tensor.is_floating_point() else torch.preserve_format
        return tensor.to(device, memory_format=kept, non_blocking=non_blocking)

    return mapped(_moved(tree, device), move)


def _moved(tree: Tree, device: torch.device) -> Tree:
    """The same nesting with every movable object on a device, by its own method, which may move it in place."""
    if isinstance(tree, Mapping) and not all(isinstance(value, Tensor) for value in tree.values()):
        return _filled(tree, {name: _moved(value, device) for name, value in tree.items()})
    if isinstance(tree, tuple | list) and not isinstance(tree, PackedSequence):
        parts = [_moved(part, device) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if not movable(tree):
        return tree
    own = copy.copy(tree)
    found = own.to(device)
    return own if found is None else found  # one that forgets to return itself


def has_each(tensor: Tensor, held: int) -> bool:
    """Whether a tensor has one entry for each of so many samples, which can be taken out: of a sparse one none can."""
    return tensor.layout == torch.strided and tensor.dim() > 0 and len(tensor) == held


def by_sample(tree: Tree, held: int, change: Callable[[Any], Any]) -> Tree:
    """A batch of `held` samples with everything changed that has one entry for each: tensors, or lists of samples.

    One that holds a movable object is left as it is, see `undivided`.
    """
    if any(map(movable, leaves(tree))):
        return tree
    if listed(tree) is None:
        return _in_rows(tree, held, change)

    def changed(part: Tree) -> Tree:
        return change(part) if isinstance(part, tuple | list) and len(part) == held else part

    if isinstance(tree, Mapping):
        return _filled(tree, {name: changed(part) for name, part in tree.items()})
    parts = [changed(part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def _in_rows(tree: Tree, held: int, change: Callable[[Any], Any]) -> Tree:
    """See `by_sample`, for a batch that is made of tensors [B, ...] and of lists of names or numbers."""
    if named(tree, held):
        return change(tree)
    if isinstance(tree, Mapping):
        return _filled(tree, {name: _in_rows(value, held, change) for name, value in tree.items()})
    if isinstance(tree, tuple | list) and not isinstance(tree, PackedSequence):
        parts = [_in_rows(value, held, change) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return mapped(tree, lambda tensor: change(tensor) if has_each(tensor, held) else tensor)


def named(tree: Tree, held: int) -> bool:
    """Whether it is a list of a name or a number for each of `held` samples, as collating texts makes one."""
    rows = isinstance(tree, tuple | list) and len(tree) == held > 0
    return rows and all(isinstance(each, _PLAIN) for each in tree)


def cut(tree: Tree, held: int, count: int) -> Tree:
    """A batch of `count` samples out of one of `held`, which are repeated where there are too few."""
    times = -(-count // held)

    def taken(given: Tensor | list[Tree]) -> Tensor | list[Tree]:
        return torch.cat([given] * times)[:count] if isinstance(given, Tensor) else (given * times)[:count]

    return by_sample(tree, held, taken)


def divided(tree: Tree, held: int, most: int) -> list[Tree]:
    """A batch of `held` samples as the fewest batches of at most `most`, whose sizes differ by one at most."""
    return parted(tree, held, -(-held // most))


def parted(tree: Tree, held: int, where: int | list[int]) -> list[Tree]:
    """A batch of `held` samples in so many parts, or cut at places, as `torch.tensor_split` takes them."""
    parts = torch.arange(held).tensor_split(where)
    return [by_sample(tree, held, lambda given, p=part: given[p[0] : p[-1] + 1]) for part in parts]  # type: ignore[misc]


def undivided(tree: Tree, held: int) -> str | None:
    """What of a batch of `held` samples has no entry for each and is no single number, in words; None without any."""
    if listed(tree) is None:
        parts = [leaf for leaf in _unnamed(tree, held) if leaf is not None]
        odd = (p for p in parts if not isinstance(p, Tensor) or (p.dim() and not has_each(p, held)))
    else:
        parts = list(tree.values()) if isinstance(tree, Mapping) else list(tree)
        odd = (p for p in parts if not isinstance(p, tuple | list) or len(p) != held)
    found = next(odd, None)
    if isinstance(found, Tensor):
        sparse = "" if found.layout == torch.strided else "sparse "
        return f"a {sparse}tensor of shape {tuple(found.shape)}"
    return None if found is None else f"a {type(found).__name__}"


def _unnamed(tree: Tree, held: int) -> list[Any]:
    """Its leaves, but for lists of names or numbers, and for numbers that stand by themselves, which are of all."""
    if named(tree, held):
        return []
    if not isinstance(tree, Mapping | tuple | list):
        return leaves(tree)
    parts = list(tree.values()) if isinstance(tree, Mapping) else list(tree)
    alone = isinstance(tree, Mapping) or not all(isinstance(part, _PLAIN) for part in parts)
    return [leaf for p in parts if not (alone and isinstance(p, int | float)) for leaf in _unnamed(p, held)]
