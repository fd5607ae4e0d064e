"""What a training step brings BatchNorm's running statistics.

No gradient shows them: training normalizes by the batch, evaluation by them. A forward pass that is computed again
brings them a batch twice, a kernel of its own may bring them a wrong one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin


@dataclass(frozen=True)
class Values:
    """A norm's running statistics at some time.

    Attributes:
        mean: [C], in float64 on the CPU.
        variance: the same.
        batches: that it has counted.
    """

    mean: Tensor
    variance: Tensor
    batches: int


@dataclass(frozen=True)
class Running:
    """A norm's running statistics behind a step.

    Attributes:
        values: they themselves.
        mean_scale: the length (L2) of what the step brought them in units of what the norm divides by, so that a mean
            near zero counts as that.
        variance_scale: the same of the variance.
    """

    values: Values
    mean_scale: float
    variance_scale: float


Statistics = dict[str, Running]
"""By the norm's name in the net."""


def running_values(model: nn.Module) -> dict[str, Values]:
    """The running statistics of all BatchNorms of a net that keep some, as they are now, by name."""
    return {name: values for name, module in model.named_modules() if (values := _values_of(module)) is not None}


def _values_of(module: nn.Module) -> Values | None:
    if not isinstance(module, _BatchNorm) or isinstance(module, LazyModuleMixin):
        return None
    mean, variance, counted = module.running_mean, module.running_var, module.num_batches_tracked
    if mean is None or variance is None:
        return None
    return Values(_copied(mean), _copied(variance), int(counted) if counted is not None else 0)


def _copied(values: Tensor) -> Tensor:
    return values.detach().to("cpu", torch.float64, copy=True)


def statistics_behind(model: nn.Module, before: dict[str, Values]) -> Statistics:
    """The running statistics behind a step, of the norms that had some before it."""
    modules, after = dict(model.named_modules()), running_values(model)
    return {name: _behind(modules[name], before[name], after[name]) for name in before if name in after}


def _behind(module: nn.Module, before: Values, after: Values) -> Running:
    share = _share(module, before, after)
    # What a norm divides by is never nothing.
    variance = after.variance - (1 - share) * before.variance + share * float(module.eps)  # type: ignore[arg-type]
    mean = after.mean - (1 - share) * before.mean
    return Running(after, float((mean.square() + share * variance.abs()).sqrt().norm()), float(variance.norm()))


def _share(module: nn.Module, before: Values, after: Values) -> float:
    """What the batches of a step count of what its norm keeps; one that is called twice counts two."""
    batches = max(1, after.batches - before.batches)
    if module.momentum is None:  # the mean of all
        return batches / (before.batches + batches)
    return float(1 - (1 - module.momentum) ** batches)  # type: ignore[operator]


def statistics_errors(found: Statistics, expected: Statistics) -> dict[str, float]:
    """The larger of both errors by norm; infinite where the net that was found has no such norm."""
    return {name: _error(found[name], norm) if name in found else math.inf for name, norm in expected.items()}


def _error(found: Running, expected: Running) -> float:
    one, other = found.values, expected.values
    if one.mean.shape != other.mean.shape:
        return math.inf
    mean = float((one.mean - other.mean).norm()) / max(expected.mean_scale, 1e-300)
    variance = float((one.variance - other.variance).norm()) / max(expected.variance_scale, 1e-300)
    return math.nan if math.isnan(mean) else max(mean, variance)
