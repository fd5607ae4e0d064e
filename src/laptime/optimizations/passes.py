"""Stage schedule: forward and backward of a step's batch in one pass, or in several whose gradients add up."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from laptime.errors import RunError
from laptime.values.trees import divided, undivided
from laptime.workloads.base import Batch, Output

if TYPE_CHECKING:
    from laptime.optimizations.base import Options, Parts, Recipe


def one_pass(p: Parts, batch: Batch) -> Output:
    """A batch at once; its gradients are added to those that the model holds."""
    output = p.forward(p.net, batch)
    p.mark("forward")
    p.scaler.scale(output.loss).backward()
    return output


def in_parts(most: int, relaunched: bool, p: Parts, batch: Batch) -> Output:
    """A batch in parts of at most `most` samples: activations are held of one part at a time.

    Each part's mean loss counts by its share of the samples, so the gradients add up to that of the whole batch, where
    its loss is the mean over its samples. What ranks exchange while backward runs, they exchange in the last part.

    Args:
        most: samples of a part.
        relaunched: see `Recipe.relaunched`.
        p: the run's parts.
        batch: of this rank.

    Returns:
        The whole batch's loss, without a graph, and its hits and count.
    """
    *before, last = divide(batch, most)
    outputs, own = [], dict[int, Tensor]()
    with _unexchanged(p.net):
        for part in before:
            outputs.append(_added(p, part, len(part) / len(batch)))
            if relaunched:
                copy_gradients(p.model, own)
            p.mark("backward")
    return _whole([*outputs, _added(p, last, len(last) / len(batch))])


def copy_gradients(model: nn.Module, own: dict[int, Tensor]) -> None:
    """Moves gradients into memory of their own, to which the next backward adds; `own` are those that stand there."""
    for place, parameter in enumerate(model.parameters()):
        if parameter.grad is not None and parameter.grad is not own.get(place):
            own[place] = parameter.grad = parameter.grad.clone()


def divide(batch: Batch, most: int) -> list[Batch]:
    """A batch in parts of at most `most` samples.

    Raises:
        RunError: it takes more than one, and something of it belongs neither to one sample each nor, as a single number
            does, to all.
    """
    held = len(batch)
    if held <= most:
        return [batch]
    if (odd := undivided(batch.inputs, held)) is not None:
        raise RunError(
            f"a batch of {held} samples can't be divided into micro batches: it holds {odd}, which is not one for each "
            "sample; let each tensor be [B, ...], or leave micro_batch_size out."
        )
    inputs, labels = (divided(tree, held, most) for tree in (batch.inputs, batch.labels))
    parts = [replace(batch, inputs=own, labels=of, more=True) for own, of in zip(inputs, labels, strict=True)]
    return [*parts[:-1], replace(parts[-1], more=False)]


def whole_batch(recipe: Recipe, options: Options) -> Recipe:
    """Lets each batch through the net at once, whatever micro batches the user trains in."""
    return replace(recipe, micro_batch=None)


def samples_of_a_pass(recipe: Recipe) -> int:
    """Samples of a rank that go through the net at once in a step, at most."""
    of_a_rank = -(-recipe.batch_size // recipe.world.size)
    return -(-of_a_rank // passes_of(recipe))


def with_parts_told(recipe: Recipe) -> Recipe:
    """The finished recipe, with a note on the parts of its batches; the baseline's is said of all variants."""
    note = f"batches go through the net in parts of at most {recipe.micro_batch} samples, except with whole-batch"
    return recipe if passes_of(recipe) == 1 else replace(recipe, notes=(*recipe.notes, note))


def passes_of(recipe: Recipe) -> int:
    """How often a step goes forward and backward through the net."""
    of_a_rank = -(-recipe.batch_size // recipe.world.size)
    return -(-of_a_rank // (recipe.micro_batch or of_a_rank))


def _added(p: Parts, part: Batch, share: float) -> Output:
    """One part of a batch; its loss and what the epoch sums up are multiplied by its share, a graph is not kept."""
    output = p.forward(p.net, part)
    p.mark("forward")
    p.scaler.scale(output.loss * share).backward()
    return replace(output, loss=output.told * share, whole=None)


def _unexchanged(net: nn.Module) -> AbstractContextManager[None]:
    return net.no_sync() if isinstance(net, DistributedDataParallel) else nullcontext()


def _whole(parts: list[Output]) -> Output:
    hits = [part.correct for part in parts if part.correct is not None]
    return replace(
        parts[0],
        loss=_sum([part.loss for part in parts]),
        correct=_sum(hits) if hits else None,
        count=sum(part.count for part in parts),
    )


def _sum(values: list[Tensor]) -> Tensor:
    return functools.reduce(torch.add, values)
