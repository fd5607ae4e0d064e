"""The floor under a training step: what its operations cost at the best rates that this machine has shown.

Each operation takes at least its arithmetic over the measured rate and at least its traffic over the measured
bandwidth; the larger of both counts, and operations follow one another. Source: the roofline model (Williams, Waterman
and Patterson 2009, "Roofline: an insightful visual performance model for multicore architectures").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from laptime.engine.flops import formula_of
from laptime.engine.setup import samples_of_a_rank
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.samples import stand_in
from laptime.optimizations.shapes import ShapesUnknownError, guarded, shadow_of
from laptime.records import Ceilings, RunRecord
from laptime.records.rates import ceiling_share
from laptime.workloads.base import Batch

UNDERESTIMATED = "ceiling underestimated"
# Its schema calls it no view, so that autograd need not track it as one; it moves nothing all the same.
_VIEWS = {"aten::_unsafe_view"}


@dataclass(frozen=True)
class Work:
    """One operation: floating point operations and bytes read and written."""

    flops: float
    bytes: float


class WorkCounter(TorchDispatchMode):
    """Notes each operation that moves or computes something; views and bare allocations do neither."""

    def __init__(self, element_bytes: int) -> None:
        """Takes how many bytes a floating point number has in the run's precision."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.done: list[Work] = []
        self._element_bytes = element_bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation and notes it."""
        out = func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        name = func._schema.name
        if given and not func.is_view and name not in _VIEWS and "empty" not in name:
            given = [] if name.endswith("_like") else given  # of which only the shape is looked at
            formula = formula_of(func._overloadpacket)
            flops = float(formula(*args, **(kwargs or {}), out_val=out)) if formula else 0.0
            self.done.append(Work(flops, sum(map(self._bytes, (*given, *made)))))
        return out

    def _bytes(self, tensor: Tensor) -> int:
        size = self._element_bytes if tensor.is_floating_point() else tensor.element_size()
        # What is broadcast is read once: its strides are 0.
        return size * min(tensor.numel(), tensor.untyped_storage().nbytes() // tensor.element_size())


def step_work(recipe: Recipe, parts: Parts) -> list[Work]:
    """The operations of one step of the last epoch: forward and backward on shapes alone, and the optimizer's traffic.

    Raises:
        ShapesUnknownError: the net can't be run on shapes.
    """
    model = shadow_of(recipe.model).train()
    count, ranks = samples_of_a_rank(recipe), 1
    if recipe.device.type == "cpu":  # ranks share the CPU whose ceilings these are
        count, ranks = recipe.batch_size, recipe.world.size
    side = (recipe.epoch_sizes or (recipe.image_size,))[-1]
    batch = stand_in(recipe, count, size=side)
    with WorkCounter(4 if recipe.precision == "fp32" else 2) as counter:
        guarded(partial(_forward_and_backward, recipe, model, batch))
    return [*counter.done, Work(0.0, ranks * _optimizer_bytes(parts))]


def _forward_and_backward(recipe: Recipe, model: nn.Module, batch: Batch) -> None:
    recipe.workload.forward(model, batch).loss.backward()


def _optimizer_bytes(parts: Parts) -> float:
    """Reads parameters, gradients and state once, writes parameters and state once."""
    parameters = sum(p.numel() * p.element_size() for p in parts.model.parameters() if p.requires_grad)
    tensors = (v for values in parts.optimizer.state.values() for v in values.values() if isinstance(v, Tensor))
    return 3.0 * parameters + 2.0 * sum(t.numel() * t.element_size() for t in tensors)


def floor_ms(work: list[Work], ceilings: Ceilings, precision: str) -> float | None:
    """The sum over operations of the larger of arithmetic and traffic; None where a ceiling was not measured."""
    rate, bandwidth = ceilings.best(precision), ceilings.copy_gb_s
    if not rate or not bandwidth:
        return None
    return 1e3 * sum(max(w.flops / (rate * 1e9), w.bytes / (bandwidth * 1e9)) for w in work)


def with_floor(record: RunRecord, work: list[Work] | None, counted_ms: float | None) -> RunRecord:
    """A run's record with the floor and the share of the ceiling in its profile; above 1 both are told, not clipped.

    Args:
        record: of a profiled run, with the machine's ceilings.
        work: see `step_work`; None where the net can't be run on shapes.
        counted_ms: median of the counted steps.
    """
    profile = record.profile
    if profile is None:
        return record
    least = floor_ms(work, record.machine.ceilings, record.precision) if work else None
    share = least / counted_ms if least and counted_ms else None
    mfu = ceiling_share([record], record.machine.ceilings)
    over = any(s is not None and s > 1 for s in (share, mfu))
    found = {"floor_ms": least, "floor_share": share, "mfu": mfu}
    notes = (*profile.notes, UNDERESTIMATED) if over else profile.notes
    return record.model_copy(update={"profile": profile.model_copy(update={**found, "notes": notes})})


def work_or_none(recipe: Recipe, parts: Parts) -> list[Work] | None:
    """`step_work`, or None where the net can't be run on shapes alone."""
    try:
        return step_work(recipe, parts)
    except ShapesUnknownError:
        return None
