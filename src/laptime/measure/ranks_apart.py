"""What ranks keep that has come to differ between them: a queue, a memory, an average of what they have seen.

Weights are the same on all of them, and what follows the weights is; what follows samples is by each rank's part of a
batch, where one process has all of it. A comparison of the first step shows nothing of that.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from laptime.data.own.opened import OwnData
from laptime.optimizations.base import Parts, Recipe
from laptime.values.counting import Place
from laptime.values.tallies import Numbers, values_of

# Sums of what all ranks have computed alike are the same to the last bit, but for a GPU's kernels.
_ALIKE = 1e-6
_MOST_NAMED = 5

Sums = dict[tuple[str, str], tuple[float, float]]
"""By where it is found and what it is called: the sum of a tensor's values, or a number, and that of their sizes."""


def ranks_apart(parts: Parts, recipe: Recipe) -> tuple[str, ...]:
    """What to say of what ranks hold of a user's training behind some steps; nothing of one process.  # all ranks"""
    if recipe.world.size == 1 or not isinstance(recipe.data, OwnData):
        return ()
    mine = {**_tensors(parts.model, recipe.data.workload), **_numbers(parts.numbers)}
    ranks = recipe.world.collected(mine)
    shared = [key for key in mine if all(key in other for other in ranks)]
    apart = dict.fromkeys(key[1] for key in shared if not all(_same(mine[key], other[key]) for other in ranks))
    if not apart:
        return ()
    named = ", ".join([*apart][:_MOST_NAMED]) + (", …" if len(apart) > _MOST_NAMED else "")
    return (
        f"each rank has its own {named}, which follows its part of the batches: where the loss reads that, this is "
        "another training than in one process, of which the comparison of a first step shows nothing.",
    )


def _tensors(model: nn.Module, workload: object) -> Sums:
    """What of a net no gradient moves, but BatchNorm's statistics, of which another note tells; and the workload's."""
    norms = {id(b) for m in model.modules() if isinstance(m, _BatchNorm) for b in m.buffers(recurse=False)}
    frozen = [(name, p) for name, p in model.named_parameters() if not p.requires_grad]
    own = [(name, value) for name, value in getattr(workload, "__dict__", {}).items() if isinstance(value, Tensor)]
    found: Sums = {}
    for name, tensor in (*frozen, *model.named_buffers(), *own):
        if id(tensor) not in norms and tensor.layout == torch.strided and tensor.numel():
            whole = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            found["tensor", name] = float(whole.detach().double().sum()), float(whole.detach().double().abs().sum())
    return found


def _numbers(kept: Numbers) -> Sums:
    """Numbers that the user's code keeps, and that have moved since the beginning."""
    found: Sums = {}
    for place, (owner, was, _) in enumerate(kept):
        for name, value in values_of(owner).items():
            if isinstance(value, int | float) and not isinstance(value, bool) and was.get(name) is not value:
                called = owner.called(name) if isinstance(owner, Place) else str(name)
                found[f"number {place} {name}", called] = float(value), abs(float(value))
    return found


def _same(mine: tuple[float, float], other: tuple[float, float]) -> bool:
    near = _ALIKE * max(mine[1], other[1])
    return all(math.isclose(a, b, rel_tol=0, abs_tol=near) or math.isnan(a) for a, b in zip(mine, other, strict=True))
