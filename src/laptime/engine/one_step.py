"""One training step of one side of a comparison: its loss, its gradients and what it brings BatchNorm's running
statistics, with all that is random standing still.

A user's items may be drawn anew with each reading, so where they are not known to stay the same one batch is read for
both sides, and ranks take their parts of it.

What is random in a net (dropout, stochastic depth) stands still on both sides (see `still`); what it or a loss draws
in ways of their own is the same (see `same_draws`), which needs the shapes that the baseline's step has drawn.

A detector's choices stand still too (`Workload.steady`): which boxes are proposed and drawn turns on the last bit of a
score, so all sides get the same proposals, and the seed then gives the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from laptime.catalogue import find_optimization, of_stage
from laptime.data.boxes.tensors import BoxData
from laptime.data.own.opened import OwnData
from laptime.data.own.refused import only_tensors
from laptime.engine.awake import wake
from laptime.engine.build import build, make_recipe
from laptime.engine.kept import Kept
from laptime.engine.loop import driven_step
from laptime.engine.norm_statistics import Statistics, running_values, statistics_behind
from laptime.engine.plain import plain_gradients
from laptime.engine.same_draws import Draws, Part, Shapes, drawn_by_torch
from laptime.engine.still import silence, still
from laptime.optimizations.base import AnyData, Loading, Parts, Recipe, batches, shares, unclipped
from laptime.optimizations.modes import Modes
from laptime.optimizations.order import epoch_order
from laptime.optimizations.passes import divide
from laptime.optimizations.samples import laid_out
from laptime.spec import OptimizationSpec, RunSpec
from laptime.values.draws import fetched, seed_all
from laptime.values.trees import Tree, has_each, listed, mapped, samples, tensors
from laptime.workloads.base import Batch
from laptime.workloads.own import OwnWorkload
from laptime.world import ALONE, World

# A power of two: small fp16 gradients do not vanish, and dividing by it is exact.
_LOSS_SCALE = 1024.0
_STRICT = Modes(matmul_tf32=False, cudnn_tf32=False)

Specs = tuple[OptimizationSpec, ...]


def without_ranks(optimizations: Specs) -> Specs:
    """What one process on its own runs of them."""
    return tuple(o for o in optimizations if find_optimization(o.name).stage != "parallel")


@dataclass(frozen=True)
class Step:
    """What one step has come to.

    Attributes:
        loss: of the batch, on all ranks.
        gradients: by parameter of the plain net, on the CPU in fp32 or whatever wider type it came in.
        statistics: the running statistics behind it.
        drawn: the shapes of what the net and the loss have drawn.
    """

    loss: float
    gradients: dict[str, Tensor]
    statistics: Statistics = field(default_factory=dict)
    drawn: Shapes = frozenset()


@dataclass(frozen=True)
class Side:
    """How one side of a comparison is computed.

    Attributes:
        strict: in fp32 without TensorFloat-32.
        frozen: with BatchNorm's statistics held still.
        rounded: with weights that were rounded to bfloat16.
    """

    world: World = ALONE
    strict: bool = True
    frozen: bool = False
    rounded: bool = False


class Cutting(Protocol):
    """What looks into a step; see `laptime.engine.pieces`."""

    def attach(self, model: nn.Module, scale: float) -> None:
        """Called with the built net before its step, whose loss goes backward multiplied by `scale`."""
        ...


@dataclass(frozen=True)
class Held(OwnData):
    """A user's data with the one batch that all sides of a comparison take.

    Attributes:
        batch: all of it.
        parts: what each rank takes of it; empty where that is cut out of the batch.
    """

    batch: Tree = None
    parts: Sequence[Tree] = ()


class Steps:
    """The steps of a comparison, each taken once.

    Args:
        spec: the run; both sides take its batch.
        data: where the batch comes from.
        world: the ranks that take part.
    """

    def __init__(self, spec: RunSpec, data: AnyData, world: World = ALONE) -> None:
        self.spec, self.data, self.world = spec, _with_batch(spec, data, world), world
        self.kept = Kept(data.workload if isinstance(data, OwnData) else None)
        self._taken: dict[tuple[tuple[str, ...], Side], Step] = {}
        self._drawn: Shapes | None = None if isinstance(data, OwnData) else frozenset()

    def take(self, optimizations: Specs, side: Side) -> Step:
        """The step of a side with some optimizations.  # all ranks of the side's world"""
        if isinstance(self.data, BoxData):
            side = replace(side, frozen=False)  # its statistics stand still in training, too
        key = tuple(o.text() for o in optimizations), side
        found = self._taken.get(key) or self._step(optimizations, side)
        if not (side.frozen or side.rounded):  # those are asked for once, and gradients take room
            self._taken[key] = found
        return found

    def cut(self, optimizations: Specs, side: Side, cuts: Cutting) -> Step:
        """The same step with something that looks into it; taken anew each time."""
        return self._step(optimizations, side, cuts)

    def _step(self, optimizations: Specs, side: Side, cuts: Cutting | None = None) -> Step:
        if self._drawn is None and (side.world.size > 1 or of_stage(optimizations, "compile")):
            self._drawn = self.world.agreed(self.take((), Side()).drawn if self.world.first else frozenset())
        draws = Draws(self._drawn or frozenset(), self._part(side), set())
        with drawn_by_torch() if draws.seen and of_stage(optimizations, "compile") else nullcontext():
            try:
                return one_step(self.spec, self.data, optimizations, side, draws, cuts)
            finally:
                self.kept.back()

    def _part(self, side: Side) -> Part | None:
        """A side's samples, where some draw for a part of them: a detector's ranks draw among what they propose."""
        if self.world.size == 1 or not isinstance(self.data, OwnData):
            return None
        count = len(self.data.train)
        first = batches(torch.arange(count), min(self.spec.batch_size, count), self.world.size)[0]
        counts = tuple(map(len, first.tensor_split(self.world.size)))
        return Part(counts, side.world.rank if side.world.size > 1 else None)


def _with_batch(spec: RunSpec, data: AnyData, world: World) -> AnyData:
    """The data, with rank 0's reading of its first batch where another reading may differ."""
    own = spec.data.own
    if not isinstance(data, OwnData) or own is None or "resident" not in own.refused:
        return data
    order = epoch_order(len(data.train), spec.seed, 0, data.train.weights)
    chosen = batches(order, min(spec.batch_size, len(data.train)), world.size)[0].tolist()
    batch, parts = world.agreed(_read(data, chosen, world.size) if world.first else (None, ()))
    return Held(**vars(data), batch=batch, parts=parts)


def _read(data: OwnData, chosen: Sequence[int], ranks: int) -> tuple[Tree, Sequence[Tree]]:
    """Samples that are read once as a batch, and as the ranks' parts where these can't be cut out of its tensors."""
    items = fetched(data.train.dataset, chosen)
    whole = data.train.collate(items)
    by_sample = listed(whole) is None and only_tensors(whole)
    if ranks == 1 or (by_sample and all(has_each(t, len(chosen)) for t in tensors(whole))):
        return whole, ()
    # The nodes and edges of graphs, targets one behind the other, names: which belong to a sample only their collate_fn
    # knows.
    parts = [part.tolist() for part in torch.arange(len(chosen)).tensor_split(ranks)]
    if not isinstance(items, list):  # a batch that is read at once
        return whole, [data.train.batch([chosen[index] for index in part]) for part in parts]
    return whole, [data.train.collate([items[index] for index in part]) for part in parts]


def _first(recipe: Recipe, parts: Parts) -> Batch:
    """The batch of a comparison's step: a rank's part of the one that is held, else the first of the side's loader."""
    if not isinstance(recipe.data, Held):
        return next(iter(parts.loader.epoch(0)))
    whole = recipe.data.batch
    count = samples(whole)
    mine = shares(torch.arange(count), count, recipe.world)[0]
    # Copies, since a user's loss may write into its batch.
    if recipe.world.size > 1 and recipe.data.parts:
        part = mapped(recipe.data.parts[recipe.world.rank], torch.clone)
    else:
        part = mapped(whole, lambda t: t[mine.indices] if has_each(t, count) else t.clone())
    return replace(laid_out(recipe, part, recipe.device), weight=mine.weight)


def _one_pass_of(batch: Batch, data: AnyData) -> Batch:
    """What of a batch goes through the baseline's net at once: whatever looks into a step looks into one pass."""
    most = data.micro_batch if isinstance(data, OwnData) else None
    return batch if most is None else divide(batch, most)[0]


def compared(gradient: Tensor) -> Tensor:
    """A gradient as it is compared: all its values, of complex ones both parts, on the CPU.

    Not in float64, in which distances are summed up: of a large net four gradients are held beside each other.
    """
    whole = gradient.detach().to_dense()
    values = torch.view_as_real(whole) if whole.is_complex() else whole
    return values.to("cpu", torch.promote_types(values.dtype, torch.float32))


def one_step(
    spec: RunSpec, data: AnyData, optimizations: Specs, side: Side, draws: Draws, cuts: Cutting | None = None
) -> Step:
    """Builds a side and takes its step; see `Step`."""
    recipe = make_recipe(spec, data, optimizations, side.world, start=wake)
    if not {"workers", "pinned"} & {o.name for o in optimizations}:
        recipe = replace(recipe, loading=Loading())  # the tutorials' would fetch far more than one batch
    if side.strict:
        recipe = replace(recipe, modes=replace(_STRICT, benchmark=recipe.modes.benchmark))
    parts: Parts = build(recipe, mark=lambda _: None)
    parts.clip = unclipped  # gradients are compared as the backward pass leaves them, also where a trainer would clip
    silence(parts.model, side.frozen)
    recipe.workload.steady(parts.model)
    if isinstance(recipe.workload, OwnWorkload):
        recipe.workload.restart()  # some optimizations have called the loss
    before = running_values(parts.model)
    if side.rounded:
        for values in parts.model.parameters():
            values.data.copy_(values.data.bfloat16())
    seed_all(spec.seed)  # for what a net draws in ways of its own
    scale = _LOSS_SCALE if recipe.loss_scaling else 1.0
    parts.scaler = GradScaler(parts.device.type, init_scale=scale, enabled=recipe.loss_scaling)
    batch = _first(recipe, parts)
    if cuts is not None:
        cuts.attach(parts.model, scale)
        batch = _one_pass_of(batch, recipe.data)
    with still(draws):
        loss = driven_step(parts, batch) if parts.driver else parts.passes(parts, batch).loss
        if parts.driver is None:
            parts.exchange(parts.model)
    # In place: a power of two takes no bit away, and the net that holds the gradients is done.
    gradients = {k: compared(v).div_(scale) for k, v in plain_gradients(parts.model).items()}
    # Each rank's loss counts by its part: the mean over the ranks is that of the whole batch.
    whole = float(side.world.summed(loss.detach().double()) / side.world.size)
    return Step(whole, gradients, statistics_behind(parts.model, before), frozenset(draws.told or ()))
