"""Weights by which a user's training samples are drawn, as torch's WeightedRandomSampler takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laptime.data.own.importing import told_with_line
from laptime.errors import UsageError
from laptime.own.protocol import Workload
from laptime.own.user_code import place_in

# What torch.multinomial draws from.
_MOST = 2**24


def sample_weights(workload: Workload, train: Any, file: Path) -> Tensor | None:
    """A weight for each training sample [n], float64 on the CPU; None where each is drawn once an epoch.

    Args:
        workload: of whom its `sample_weights` is asked.
        train: the training data as `data()` gave them.
        file: the user's.

    Raises:
        UsageError: what it gives are no weights of these samples.
        RunError: the user's code failed.
    """
    with told_with_line(f"sample_weights of {file.name}", file):
        asked: Any = getattr(workload, "sample_weights", None)
    if asked is None:
        return None
    if not callable(asked):
        raise UsageError(
            f"sample_weights of {file.name} is a {type(asked).__name__}: make it a method that returns it, "
            "def sample_weights(self, train)."
        )
    maker = getattr(workload, "loading", asked)  # of a LightningModule
    name = f"{getattr(maker, '__name__', 'sample_weights')}()"
    with told_with_line(name, file, maker):
        given = asked(train)
        said, place = f"{name} of {file.name} gave", place_in(file, (), (maker,))
        return None if given is None else _checked(given, len(train), said, place)


def limit_order(count: int) -> Tensor:
    """The order in which a limit keeps so many samples: a smaller limit's are among a larger one's."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))


def least_limit(weights: Tensor | None) -> int:
    """The smallest limit that keeps a sample with a weight above 0."""
    return 1 if weights is None else 1 + int(weights[limit_order(len(weights))].nonzero()[0])


def as_weights(given: Any) -> Tensor:
    """Numbers of whatever kind as float64 [n] in memory of their own; a column of a data frame in the order it has."""
    found = given.detach() if isinstance(given, Tensor) else torch.tensor(np.asarray(given))
    return found.to(torch.float64, copy=True)


def _checked(given: Any, count: int, said: str, place: str) -> Tensor:
    """What a user's function gave as weights of so many samples; raises UsageError, which says whose and where."""
    if isinstance(given, Tensor) and given.device.type != "cpu":
        raise UsageError(f"{said} weights on {given.device}{place}: return them on the CPU, where they draw.")
    try:
        weights = as_weights(given)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{said} a {type(given).__name__} in which not all are numbers{place}: return one for each of the {count} "
            "training samples."
        ) from error
    if weights.shape != (count,):
        raise UsageError(
            f"{said} weights of shape {tuple(weights.shape)} for {count} training samples{place}: return one number "
            f"for each, of shape ({count},)."
        )
    if count > _MOST:
        raise UsageError(
            f"{said} weights of {count} samples{place}, and torch draws by weights from {_MOST} at most: leave the "
            "weights out, or some of the samples."
        )
    wrong = ~((weights >= 0) & weights.isfinite())
    if wrong.any():
        index = int(wrong.nonzero()[0])
        raise UsageError(
            f"{said} {weights[index].item():g} as the weight of training sample {index}{place}: return numbers from 0 "
            "on."
        )
    total = weights.sum().item()
    if not 0 < total < torch.inf:
        raise UsageError(
            f"{said} weights whose sum is {total:g}{place}: return some that are above 0, and none so large."
        )
    return weights
