"""Stage parallel: several ranks train one net, each on its part of every batch.

The ranks' loaders share out the batches of one process (`base.shares`), and gradients are averaged, so the trajectory
is that of one process. What differs is BatchNorm: with local statistics, as DDP is used in the field and as is faster,
each rank normalizes by its own part of the batch; with synchronized ones the result is exact.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from laptime.data.lightning.module import LightningWorkload
from laptime.errors import RunError, UsageError
from laptime.optimizations.base import Forward, Options, Recipe, Wrap
from laptime.optimizations.buckets import chosen_mb
from laptime.optimizations.precision import AUTOCAST
from laptime.optimizations.sync_batchnorm import synchronized
from laptime.workloads.base import Batch, Output
from laptime.workloads.own import OwnWorkload
from laptime.world import World

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_NORMALIZED_BY = {"local": "each rank's part", "sync": "the whole batch"}


def ddp(recipe: Recipe, options: Options) -> Recipe:
    """Wraps the net in DistributedDataParallel, as torch's tutorials do or with everything that it offers for speed.

    Where tuned, a size of buckets that was not given is tried out and noted in `settled`, so that the check and later
    rounds repeat it.
    """
    size = int(options["bucket_mb"])
    recipe, dtype = _joined(recipe, options), _DTYPES[str(options["reduce"])]
    if not recipe.world.grouped:
        return replace(recipe, notes=(*recipe.notes, "one process alone: nothing is exchanged"))
    if isinstance(recipe.workload, OwnWorkload) and not isinstance(recipe.workload.user, LightningWorkload):
        recipe = replace(recipe, wrappers=(*recipe.wrappers, WholeLoss), forward=_within(recipe.forward))
    if not options["tuned"]:
        return replace(recipe, wrappers=(*recipe.wrappers, _wrapper(recipe.world, None, dtype)))
    # torch's compiler asks for DDP without a static graph (torch.compiler_faq), and no_sync takes none.
    wanted: dict[str, Any] = {} if recipe.compiled or recipe.micro_batch else {"static_graph": True}

    def wrapped(bucket_mb: int) -> Wrap:
        return _wrapper(recipe.world, {**wanted, "bucket_cap_mb": bucket_mb}, dtype)

    if not size:
        size, note = chosen_mb(recipe, wrapped)
        settled: dict[str, Options] = {**recipe.settled, "ddp": {"bucket_mb": size}}
        recipe = replace(recipe, settled=settled, notes=(*recipe.notes, note))
    return replace(recipe, wrappers=(*recipe.wrappers, wrapped(size)))


def _wrapper(world: World, tuned: dict[str, Any] | None, dtype: torch.dtype) -> Wrap:
    """Takes the arguments that a tuned one has beside the usual; None for torch's defaults."""
    known = inspect.signature(DistributedDataParallel).parameters
    # BatchNorm's statistics are evened out before an evaluation, so no step needs to send them.
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    usual: dict[str, Any] = {
        "gradient_as_bucket_view": True,
        buffers: False,
        "batched_grad_copy": True,  # torch >= 2.14: one copy a bucket instead of one a parameter
    }
    chosen = {} if tuned is None else {k: v for k, v in {**usual, **tuned}.items() if k in known}

    def wrap(net: nn.Module) -> nn.Module:
        places = [world.device.index] if world.device.type == "cuda" else None
        wrapped = DistributedDataParallel(net, device_ids=places, **chosen)
        if not all(weight.requires_grad for weight in net.parameters()):
            wrapped.register_forward_pre_hook(_refusing_unfrozen(net))
        if dtype is torch.bfloat16:
            wrapped.register_comm_hook(None, bf16_compress_hook)
        return wrapped

    return wrap


def _refusing_unfrozen(net: nn.Module) -> Callable[..., None]:
    """A hook that ends a run in which weights are trained that were frozen when DDP looked: it exchanges none of them.

    A loss itself may change that: each pass tells what the one before it has left.
    """
    frozen = [(name, weight) for name, weight in net.named_parameters() if not weight.requires_grad]

    def hook(*_: object) -> None:
        found = next((name for name, weight in frozen if weight.requires_grad), None)
        if found is not None:
            raise RunError(
                f"{found.removeprefix('net.')} was frozen when ddp wrapped the net and is trained now, and ranks don't "
                "exchange its gradient: leave ddp out; flat-reduce exchanges what is trained in each step."
            )

    return hook


class WholeLoss(nn.Module):
    """A user's loss as a forward pass, for DistributedDataParallel to wrap; a LightningModule's is one already.

    The loss gets the net itself, as on one process: it may read its buffers, call its methods, or call it twice.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, loss: Callable[[nn.Module], Tensor]) -> Tensor:
        """The loss that a function finds with the net, a scalar."""
        return loss(self.net)


def _within(forward: Forward) -> Forward:
    """Takes the whole of a forward pass through what wraps a `WholeLoss`; any other net is called as it is."""

    def taken(net: nn.Module, batch: Batch) -> Output:
        if not isinstance(net, DistributedDataParallel):
            return forward(net, batch)
        found: list[Output] = []

        def loss(inner: nn.Module) -> Tensor:
            found.append(forward(inner, batch))
            return found[0].loss

        loss_with_hooks: Tensor = net(loss)
        return replace(found[0], loss=loss_with_hooks)

    return taken


def flat_reduce(recipe: Recipe, options: Options) -> Recipe:
    """Averages all gradients in one flat tensor between backward and optimizer; the net is not wrapped.

    Nothing overlaps with the backward pass, but a net of this size is small, and the whole step can be captured in a
    CUDA graph. Each rank keeps its own BatchNorm statistics while it trains; evaluation and the saved model take rank
    0's.
    """
    recipe = _joined(recipe, options)
    if not recipe.world.grouped:
        return replace(recipe, notes=(*recipe.notes, "one process alone: nothing is exchanged"))

    def wrap(net: nn.Module) -> nn.Module:
        recipe.world.same(net)  # all ranks
        return net

    return replace(
        recipe,
        wrappers=(*recipe.wrappers, wrap),
        exchange=FlatReduce(recipe.world.size, _DTYPES[str(options["reduce"])]),
    )


class FlatReduce:
    """One all-reduce of all gradients: static memory, no wait for the device, so a CUDA graph can hold it.

    A weight may have a gradient on some ranks alone (an expert that none of a rank's samples goes to, a block that is
    left out at random): it counts as zero on the others, as in one process. Behind the gradients stands which there
    are; only a rank that lacks one reads that, and waits for the device.
    """

    def __init__(self, ranks: int, dtype: torch.dtype) -> None:
        self.ranks, self.dtype = ranks, dtype
        self.sent = self.flat = self.there = self.said = torch.empty(0)
        self.views: list[Tensor] = []
        self.trained: list[nn.Parameter] = []
        self.given: list[bool] = []
        self.anywhere: list[bool] = []

    def __call__(self, model: nn.Module) -> None:
        """Replaces the gradients of a model by their mean over the ranks.  # all ranks"""
        trained = [p for p in model.parameters() if p.requires_grad]
        if list(map(id, trained)) != list(map(id, self.trained)):
            self._lay_out(trained)
        given = [p.grad is not None for p in trained]
        if given != self.given:
            self.given, self.said = given, torch.tensor(given).to(self.sent)
        gradients = [_real(p.grad) for p in trained if p.grad is not None]
        views = [view for view, there in zip(self.views, given, strict=True) if there]
        if len(views) < len(trained):
            self.sent.zero_()
        torch._foreach_copy_(views, gradients)
        self.there.copy_(self.said)
        if self.sent.is_cuda:
            dist.all_reduce(self.sent, op=dist.ReduceOp.AVG)
        else:  # gloo has no average
            dist.all_reduce(self.sent)
            self.sent.div_(self.ranks)
        torch._foreach_copy_(gradients, views)
        if len(views) < len(trained):
            self._take_others()

    def _take_others(self) -> None:
        """Gives weights the gradient that they have on other ranks alone."""
        if not (self.sent.is_cuda and torch.cuda.is_current_stream_capturing()):  # which holds what the step before had
            self.anywhere = (self.there > 0).tolist()  # waits for the device
        for parameter, view, there in zip(self.trained, self.views, self.anywhere, strict=True):
            if there and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
                _real(parameter.grad).copy_(view)

    def _lay_out(self, trained: list[nn.Parameter]) -> None:
        self.trained, self.given = trained, []
        like = [_real(torch.empty_like(p) if p.grad is None else p.grad) for p in trained]
        sizes = [g.numel() for g in like]
        # Gradients in float64, as tests of exactness have, stay so.
        dtype = torch.float64 if torch.float64 in [g.dtype for g in like] else self.dtype
        self.sent = torch.empty(sum(sizes) + len(like), dtype=dtype, device=like[0].device)
        self.flat, self.there = self.sent.split([sum(sizes), len(like)])
        # The strides of each gradient, so that NHWC weights are copied as they lie.
        self.views = [
            part.as_strided(g.size(), g.stride()) if _dense(g) else part.view(g.size())
            for part, g in zip(self.flat.split(sizes), like, strict=True)
        ]


def _real(tensor: Tensor) -> Tensor:
    """The same numbers, of which a complex one is two; in the same memory."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


def dp(recipe: Recipe, options: Options) -> Recipe:
    """Wraps the net in DataParallel: one process, which copies the net to all GPUs in every step. For comparison."""

    def wrap(net: nn.Module) -> nn.Module:
        if recipe.precision in AUTOCAST:
            net = UnderAutocast(net, recipe.device.type, AUTOCAST[recipe.precision])
        return nn.DataParallel(net)

    return replace(recipe, wrappers=(*recipe.wrappers, wrap))


class UnderAutocast(nn.Module):
    """A net that enters autocast by itself: DataParallel's threads are told that it is on, but not its format."""

    def __init__(self, net: nn.Module, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self.device, self.dtype = net, device, dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The net's inputs, by place or by name, to its outputs."""
        with torch.autocast(self.device, self.dtype):
            return self.net(*args, **kwargs)


def _joined(recipe: Recipe, asked: Options) -> Recipe:
    """What all kinds of exchange need: enough samples for each rank, BatchNorm, and weights for unequal parts."""
    batchnorm, ranks = str(asked["batchnorm"]), recipe.world.size
    if ranks == 1:
        return recipe
    if recipe.batch_size < 2 * ranks:
        raise UsageError(
            f"a batch of {recipe.batch_size} is too small for {ranks} ranks, each of which needs two samples: give a "
            f"batch of at least {2 * ranks}, more training images, or fewer ranks."
        )
    normalized = any(isinstance(module, _BatchNorm) for module in recipe.model.modules())
    # A net without any stays itself: there are some that can't be copied.
    model = synchronized(recipe.model, recipe.device) if normalized and batchnorm == "sync" else recipe.model
    note = f"{ranks} ranks, {recipe.batch_size} samples a step in all"
    if normalized:
        note += f"; BatchNorm normalizes by {_NORMALIZED_BY[batchnorm]}"
    rest = len(recipe.data.train) % recipe.batch_size
    if 1 < rest < 2 * ranks and rest < len(recipe.data.train):  # see `batches`
        note += f"; the last {rest} samples of an epoch join the batch before them, which one process has for itself"
    return replace(recipe, model=model, forward=_weighted(recipe.forward), notes=(*recipe.notes, note))


def _weighted(forward: Forward) -> Forward:
    def counted(model: nn.Module, batch: Batch) -> Output:
        found = forward(model, batch)
        if batch.weight == 1.0:
            return found
        whole = None if found.whole is None else found.whole * batch.weight
        return replace(found, loss=found.loss * batch.weight, weight=batch.weight, whole=whole)

    return counted
