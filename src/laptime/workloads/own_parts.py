"""A user's own micro batches: whether a batch can be divided, and what its parts together learn otherwise than it."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from laptime.catalogue.workloads import AT_ONCE
from laptime.data.own.opened import OwnData
from laptime.errors import UsageError
from laptime.own.user_code import place_in
from laptime.values.trees import Tree, samples, undivided
from laptime.workloads.own_checked import loss_line
from laptime.workloads.own_losses import Losses
from laptime.workloads.own_step import has_hooks

# Means over other numbers of tokens or pixels, as of padded texts, differ by some percent between samples at first.
# Where samples are told from the others of their batch half of it has a far lower loss (of eight, log 7 for log 15).
_SHARED = 0.1
_NORM = "its BatchNorm normalizes by micro batches, and by other samples"
_UNEVEN = "its loss of a batch is not the mean of its micro batches'"
_WEIGHED = "Lightning's Trainer has all micro batches of a step count alike, and those of the last batch may be smaller"
_BETWEEN = "its loss compares the samples of a batch with each other, and ranks see a part of them each"
_NO_MEAN = (
    "its loss of a batch is not the mean of its parts' (a mean over labelled tokens or by weights of classes, "
    "perhaps), and ranks see a part each: let each sample count alike"
)
_OBSERVED = "its net observes ranges to quantize by, and ranks see a part of a batch each"
# Of torch and of torchao, by name: a net that has none need not import either.
_OBSERVERS = {"ObserverBase", "FakeQuantizeBase"}
_EXCHANGING = ("ddp", "flat-reduce")


def looked_at(data: OwnData, model: nn.Module, losses: Losses, batch: Tree) -> tuple[dict[str, str], str]:
    """What parts of a batch leave out, with the reasons, and what a user must know of micro batches.

    Args:
        data: the user's.
        model: the net, in training mode.
        losses: of the batch and its parts.
        batch: of the training data.

    Raises:
        UsageError: a batch can't be divided, or the gradients of its parts don't add up, since the loss is a sum.
    """
    most, count = data.micro_batch, samples(batch)
    if most is None:
        between = undivided(batch, count) is None and not losses.summed and losses.apart(_SHARED)
        apart = _BETWEEN if between else _OBSERVED if _observes(model) else _NO_MEAN if losses.uneven else ""
        return {"whole-batch": AT_ONCE, **dict.fromkeys(_EXCHANGING if apart else (), apart)}, ""
    line = loss_line(data)
    _check_divided(data, batch, f"{line} gives a sum over the samples of a batch" if losses.summed else "")
    refused = {"lightning": _WEIGHED}
    if most >= data.batch_size:
        refused["whole-batch"] = AT_ONCE
    if _normalizes(model):
        refused |= {"whole-batch": f"{_NORM} in a whole batch"}
        refused |= dict.fromkeys(_EXCHANGING, f"{_NORM} where ranks share a batch")
    if any(map(has_hooks, model.parameters())):
        refused["whole-batch"] = "its weights have hooks for their gradient, which run for each micro batch"
    if not (losses.apart() or losses.uneven):
        return refused, ""
    refused |= dict.fromkeys(("whole-batch", *_EXCHANGING), _UNEVEN)
    notice = (
        f"{line} gives another loss for a batch than the mean of its micro batches', so it is another training than in "
        "whole batches: look whether that is meant."
    )
    return refused, notice


def _check_divided(data: OwnData, batch: Tree, summed: str) -> None:
    """Raises UsageError where a batch has no parts, or they have another mean; `summed` says that its loss is a sum."""
    count = samples(batch)
    odd = undivided(batch, count) if count > 1 else None
    if odd is not None:
        place = place_in(data.file, (), (data.train.collate, data.workload.data))
        raise UsageError(
            f"a batch of {count} samples of {data.file.name} holds {odd}{place}, which is not one for each, so it "
            "can't be divided into micro batches: let each tensor be [B, ...], or leave micro_batch_size out."
        )
    if summed:
        raise UsageError(
            f"{summed}, which the mean over its micro batches is not: divide it by their number, or leave "
            "micro_batch_size out."
        )


def _observes(model: nn.Module) -> bool:
    """Whether what a net computes depends on all that it has seen, as in quantization-aware training."""
    return any(not _OBSERVERS.isdisjoint(c.__name__ for c in type(m).__mro__) for m in model.modules())


def _normalizes(model: nn.Module) -> bool:
    """Whether samples depend on the others that go through the net with them; frozen norms stay in evaluation."""
    return any(isinstance(module, _BatchNorm) and module.training for module in model.modules())
