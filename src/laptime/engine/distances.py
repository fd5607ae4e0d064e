"""How far gradients and other values of one step are from those of another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# A layer's error is measured against at least this share of the whole gradient: below it, it can't lead a step astray.
_LEAST_SHARE = 1e-3
# A whole gradient (L2) of at most this share of the loss is what fp32 leaves of sums that cancel: 2e-6 of
# EfficientNet-B5 on twelve tiles of 16x16, four of each class, where four tiles alone make 5.7.
_ROUNDING_ALONE = 1e-5
# Values that are held in float64 at once, 32 MiB: a layer of some hundred million would take gigabytes.
_AT_ONCE = 2**22


@dataclass(frozen=True)
class Farthest:
    """What is farthest off in a comparison of many, by what is allowed: its name, its error and the tolerance."""

    name: str
    error: float
    tolerance: float

    @property
    def right(self) -> bool:
        """Whether the error is a number within the tolerance, and so are all others within theirs."""
        return within(self.error, self.tolerance)


def within(error: float, limit: float) -> bool:
    """Whether an error is a number, and no larger than what is allowed."""
    return math.isfinite(error) and error <= limit


def loss_error(found: float, expected: float) -> float:
    """|found - expected| / |expected|."""
    return abs(found - expected) / max(abs(expected), 1e-12)


def relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """||found - expected|| / ||expected|| over all tensors together; infinite where names differ."""
    if found.keys() != expected.keys():
        return math.inf
    norm = _length(expected)
    difference = math.hypot(*(_distance(found[k], v) for k, v in expected.items()))
    return difference / norm if norm else math.inf


def incomparable(found: dict[str, Tensor], expected: dict[str, Tensor]) -> str:
    """Why a relative error is infinite, as the end of a sentence on gradients; empty where it is not.

    Args:
        found: the variant's gradients by parameter.
        expected: the baseline's.
    """
    differing = found.keys() ^ expected.keys()
    if differing:
        name = min(differing)
        return f"{name} has one in {'this variant' if name in found else 'the baseline'} alone"
    if _length(expected):
        return ""
    if _length(found):
        return "the baseline's are zero in this step, and this variant's are not"
    return (
        "they are zero in this step on both sides, so that it does not show whether the variant is right: let the loss "
        "of the first batch have a gradient"
    )


def layer_errors(
    found: dict[str, Tensor], expected: dict[str, Tensor], least_share: float = _LEAST_SHARE
) -> dict[str, float]:
    """The relative error of each parameter's gradient; where names differ, that of one of these alone, infinite.

    Args:
        found: gradients by parameter.
        expected: those that they are held against.
        least_share: of the whole gradient: no layer's counts as shorter.
    """
    differing = found.keys() ^ expected.keys()
    if differing:
        return {min(differing): math.inf}
    least = least_share * _length(expected)
    return {k: _distance(found[k], v) / max(_norm(v), least, 1e-300) for k, v in expected.items()}


def worst_layer(found: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[str, float]:
    """The parameter whose gradient has the largest relative error, and that error; infinite where names differ."""
    errors = layer_errors(found, expected)
    worst = worst_of(errors)
    return worst, errors[worst]


def worst_of(errors: dict[str, float]) -> str:
    """The name with the largest error: not a number is worse than any, and max() would pass it over."""
    return max(errors, key=lambda k: errors[k] if math.isfinite(errors[k]) else math.inf)


def farthest(errors: dict[str, float], allowed: dict[str, float]) -> Farthest | None:
    """The error that is farthest off by what is allowed there; None of none."""
    if not errors:
        return None
    name = worst_of({k: error / allowed[k] for k, error in errors.items()})
    return Farthest(name, errors[name], allowed[name])


def comparable_gradient(loss: float, gradient: dict[str, Tensor]) -> bool:
    """Whether a gradient is finite and more than rounding.

    What the samples of a batch with as many of each class say of a net that gives the same for all of them cancels out.
    """
    length = _length(gradient)
    return math.isfinite(length) and length > _ROUNDING_ALONE * abs(loss)


def _length(gradient: dict[str, Tensor]) -> float:
    return math.hypot(*(_norm(v) for v in gradient.values()))


def _norm(values: Tensor) -> float:
    return math.hypot(*(float(some.double().norm()) for some in _cut(values)))


def _distance(one: Tensor, other: Tensor) -> float:
    """||one - other||, in float64 whatever theirs is."""
    pairs = zip(_cut(one), _cut(other), strict=True)
    return math.hypot(*(float((a.double() - b.double()).norm()) for a, b in pairs))


def _cut(values: Tensor) -> tuple[Tensor, ...]:
    return torch.split(values.reshape(-1), _AT_ONCE)
