"""Batches as users nest them: tensors in tuples, lists, dictionaries and dataclasses, to any depth.

What is none of these (a text, a number) is left as it is. torch.utils._pytree does the same, but is private and does
not know the dictionary-like classes of tokenizers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Tree = Any
"""A tensor, a tuple, list, dictionary or dataclass of trees, or anything else."""


def mapped(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """The same nesting with every tensor changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        changed = copy.copy(tree)  # keeps the class, whatever its constructor takes
        changed.update({k: mapped(v, change) for k, v in tree.items()})  # type: ignore[attr-defined]
        return changed
    if isinstance(tree, PackedSequence):  # of which the numbers that say how it is packed stay on the CPU
        return PackedSequence(change(tree.data), tree.batch_sizes, *(t if t is None else change(t) for t in tree[2:]))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(v, change) for v in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(v, change) for v in tree)
    fresh: Tree = copy.copy(tree) if is_dataclass(tree) else tree  # by copy, whatever its constructor does
    for name, value in held(tree).items():
        object.__setattr__(fresh, name, mapped(value, change))  # it may be frozen
    return fresh


def held(tree: Tree) -> dict[str, Tree]:
    """The fields of a dataclass by name; nothing of anything else."""
    names = [f.name for f in fields(tree)] if is_dataclass(tree) and not isinstance(tree, type) else []
    return {name: getattr(tree, name) for name in names if hasattr(tree, name)}


def leaves(tree: Tree) -> list[Any]:
    """All that is neither tuple, list, dictionary nor dataclass, in order."""
    if isinstance(tree, Mapping):
        return [leaf for v in tree.values() for leaf in leaves(v)]
    if isinstance(tree, tuple | list):
        return [leaf for v in tree for leaf in leaves(v)]
    if is_dataclass(tree):
        return [leaf for v in held(tree).values() for leaf in leaves(v)]
    return [tree]


def tensors(tree: Tree) -> list[Tensor]:
    """All tensors, in order."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Tensor)]


def listed(tree: Tree) -> int | None:
    """How many samples a batch holds that is made of lists of them; None of one that is made of tensors [B, ...].

    So torchvision's detectors take it, `(images, targets)`: images of any sizes, and a dictionary for each. A list of
    dictionaries tells it, beside which no tensor stands.
    """
    parts = list(tree.values()) if isinstance(tree, Mapping) else list(tree) if isinstance(tree, tuple | list) else []
    lists = [p for p in parts if isinstance(p, tuple | list) and p and all(isinstance(each, Mapping) for each in p)]
    return len(lists[0]) if lists and not any(isinstance(part, Tensor) for part in parts) else None


def samples(tree: Tree) -> int:
    """How many samples a batch holds: those of its lists, the first dimension of its first tensor, or its length."""
    count = listed(tree)
    if count is not None:
        return count
    first = next((t for t in tensors(tree) if t.dim()), None)
    return len(tree) if first is None else len(first)


def sent(tree: Tree, device: torch.device, layout: torch.memory_format, non_blocking: bool = False) -> Tree:
    """A copy on a device, where it is not there already; images [B, C, H, W] come in the layout."""

    def move(tensor: Tensor) -> Tensor:
        kept = layout if tensor.dim() == 4 and tensor.is_floating_point() else torch.preserve_format
        return tensor.to(device, memory_format=kept, non_blocking=non_blocking)

    return mapped(tree, move)


def by_sample(tree: Tree, held: int, change: Callable[[Any], Any]) -> Tree:
    """A batch of `held` samples with everything changed that has one entry for each: tensors, or lists of samples."""
    if listed(tree) is None:
        return mapped(tree, lambda tensor: change(tensor) if tensor.dim() and len(tensor) == held else tensor)

    def changed(part: Tree) -> Tree:
        return change(part) if isinstance(part, tuple | list) and len(part) == held else part

    if isinstance(tree, Mapping):
        fresh = copy.copy(tree)
        fresh.update({name: changed(part) for name, part in tree.items()})  # type: ignore[attr-defined]
        return fresh
    parts = [changed(part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def cut(tree: Tree, held: int, count: int) -> Tree:
    """A batch of `count` samples out of one of `held`, which are repeated where there are too few."""
    times = -(-count // held)

    def taken(given: Tensor | list[Tree]) -> Tensor | list[Tree]:
        return torch.cat([given] * times)[:count] if isinstance(given, Tensor) else (given * times)[:count]

    return by_sample(tree, held, taken)


def divided(tree: Tree, held: int, most: int) -> list[Tree]:
    """A batch of `held` samples as the fewest batches of at most `most`, whose sizes differ by one at most."""
    parts = torch.arange(held).tensor_split(-(-held // most))
    return [by_sample(tree, held, lambda given, p=part: given[p[0] : p[-1] + 1]) for part in parts]  # type: ignore[misc]


def undivided(tree: Tree, held: int) -> str | None:
    """What of a batch of `held` samples has no entry for each and is no single number, in words; None without any."""
    if listed(tree) is None:
        parts = [leaf for leaf in leaves(tree) if leaf is not None]
        odd = (p for p in parts if not isinstance(p, Tensor) or (p.dim() and len(p) != held))
    else:
        parts = list(tree.values()) if isinstance(tree, Mapping) else list(tree)
        odd = (p for p in parts if not isinstance(p, tuple | list) or len(p) != held)
    found = next(odd, None)
    if isinstance(found, Tensor):
        return f"a tensor of shape {tuple(found.shape)}"
    return None if found is None else f"a {type(found).__name__}"
