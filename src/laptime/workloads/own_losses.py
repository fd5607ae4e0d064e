"""The loss of a batch of a user's own beside those of the same again, of it twice over and of its parts."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from laptime.data.lightning.module import LightningWorkload
from laptime.data.own.opened import OwnData
from laptime.values.draws import drawn, have_drawn
from laptime.values.trees import Tree, cut, divided, mapped, parted, samples, undivided
from laptime.workloads.base import Batch
from laptime.workloads.own import answered, looked_at

# Two sums of the same numbers.
_ALIKE = 1e-3
# Samples above which two parts that are no halves have at least two each.
_UNEQUAL = 5


Parts = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Losses:
    """Losses in evaluation, since dropout draws and BatchNorm sees a batch as a whole; nan where there is none.

    Attributes:
        whole, again: of a batch.
        twice: of it with all its samples once more.
        parts: of its parts, each with its samples.
        unequal: of two parts of other sizes, three and five of eight: halves may have as many labelled tokens, or
            samples of a class, by chance, and then the mean of theirs is that of the whole; none of what can't be cut.
        drew: whether it draws random numbers.
    """

    whole: float = math.nan
    again: float = math.nan
    twice: float = math.nan
    parts: Parts = ()
    unequal: Parts = ()
    drew: bool = False

    @property
    def summed(self) -> bool:
        """Whether that of a batch and itself is twice that of the batch, and of its parts together as much as it."""
        found = self.twice / 2, sum(loss for loss, _ in self.parts)
        return abs(self.whole) > 0 and all(math.isclose(f, self.whole, rel_tol=_ALIKE) for f in found)

    def apart(self, alike: float = _ALIKE) -> bool:
        """Whether the mean of the parts is another than that of the whole, by a share of it.

        What draws numbers in each loss, or gives none for a part, shows nothing.
        """
        return self._apart(self.parts, alike)

    @property
    def uneven(self) -> bool:
        """Whether that of a batch is no mean over its samples, as a mean over labelled tokens or by weights is none."""
        return not (self.drew or self.summed) and self._apart(self.unequal, _ALIKE)

    def _apart(self, parts: Parts, alike: float) -> bool:
        mean = sum(loss * count for loss, count in parts) / max(1, sum(count for _, count in parts))
        steady = bool(parts) and math.isfinite(mean) and math.isclose(self.whole, self.again, rel_tol=_ALIKE)
        return steady and not math.isclose(mean, self.whole, rel_tol=alike)


@torch.no_grad()
def losses_of(data: OwnData, model: nn.Module, batch: Tree) -> Losses:
    """Those of a batch, of which parts are micro batches or halves; all that the user's code changes is put back."""
    training = [(module, module.training) for module in model.modules()]
    model.eval().training = isinstance(data.workload, LightningWorkload)  # its training_step(), of parts in evaluation
    try:
        with looked_at(data.workload):  # a teacher that follows, too
            twice, *parts = _twice_and_parts(data, batch, samples(batch))
            begun = drawn()
            whole, again, twofold = (_loss(data, model, each) for each in (batch, batch, twice))
            drew = have_drawn(begun)
            found, unequal = (tuple((_loss(data, model, part), samples(part)) for part in some) for some in parts)
            return Losses(whole, again, twofold, found, unequal, drew)
    except (Exception, SystemExit):  # whatever a user's code raises where it makes batches
        return Losses()
    finally:
        for module, was in training:
            module.training = was


def _loss(data: OwnData, model: nn.Module, batch: Tree) -> float:
    with suppress(Exception, SystemExit):  # what a loss says of other numbers of samples than it was made for
        given = Batch(mapped(batch, torch.clone))  # which it may change
        return answered(data.workload, model, given, data.file)[0].item()
    return math.nan


def _twice_and_parts(data: OwnData, batch: Tree, count: int) -> tuple[Tree, list[Tree], list[Tree]]:
    """A batch of the first `count` items twice over, its parts, and two unequal ones; what can't be cut is made of the
    items, and has none of these, since items may differ when they are read again.
    """
    most = min(data.micro_batch or count, -(-count // 2))
    if undivided(batch, count) is None:
        unequal = parted(batch, count, [count // 2 - 1]) if count > _UNEQUAL else []
        return cut(batch, count, 2 * count), divided(batch, count, most), unequal
    items = torch.arange(count)
    parts = [data.train.batch(part.tolist()) for part in items.tensor_split(-(-count // most))]
    return data.train.batch(items.tolist() * 2), parts, []
