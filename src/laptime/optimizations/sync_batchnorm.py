"""BatchNorm over the whole batch of all ranks: torch's own on CUDA; on the CPU, where that refuses, one of ours."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from laptime.errors import UsageError
from laptime.optimizations.live_taps import HOOKS
from laptime.values.copies import copy_of

_TORCHS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def _of_all(values: Tensor) -> Tensor:
    """[n] of this rank to the sum [n].  # all ranks"""
    summed = values.clone()
    dist.all_reduce(summed)
    return summed


# An operator, which a compiled graph takes as it is: of a collective that torch 2.11 sees within one, Dynamo makes one
# without a gradient, also in a function of autograd, so that the weights before it would get zeros.
_summed = torch.library.custom_op("laptime::summed", _of_all, mutates_args=(), schema="(Tensor values) -> Tensor")
_summed.register_fake(torch.empty_like)
# The gradient of the sum is the sum of the ranks' gradients, since each rank's loss hangs on it.
_summed.register_autograd(lambda _, gradient: _summed(gradient))


class GlooBatchNorm(_BatchNorm):
    """BatchNorm whose statistics are those of all ranks, in two all-reduces: the mean, then the squares around it.

    The gradient passes through both. Parts may be unequal.
    """

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, ...] of this rank, normalized by the batch of all ranks.  # all ranks"""
        if not self.training:
            found: Tensor = super().forward(images)
            return found
        self._keep_count()
        dims = [d for d in range(images.dim()) if d != 1]
        shape = [1, -1, *[1] * (images.dim() - 2)]
        # Statistics are kept in fp32 at least, as torch's are under autocast.
        values = images if images.dtype is torch.float64 else images.float()
        own = torch.tensor([values.numel() / values.shape[1]], dtype=values.dtype)
        summed = _summed(torch.cat([values.sum(dims), own]))
        count = summed[-1].detach()
        mean = summed[:-1] / count
        centred = values - mean.view(shape)
        variance = _summed(centred.square().sum(dims)) / count
        self._keep(mean.detach(), variance.detach() * count / (count - 1))
        scaled: Tensor = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        return scaled.to(images.dtype)

    def _keep_count(self) -> None:
        if self.num_batches_tracked is not None and self.track_running_stats:
            self.num_batches_tracked.add_(1)

    def _keep(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or not self.track_running_stats:
            return
        share = 1 / float(self.num_batches_tracked or 1) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - torch's name
        """Takes any number of dimensions, as torch's synchronized one does."""


class UnsyncedError(UsageError):
    """A BatchNorm that none over all ranks can stand for."""


def synchronized(model: nn.Module, device: torch.device) -> nn.Module:
    """A copy of a model whose BatchNorms normalize over all ranks; names and state stay as they are.

    Raises:
        UnsyncedError: one of them does more than torch's own.
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (type(module) not in _TORCHS or any(vars(module)[k] for k in HOOKS)):
            raise UnsyncedError(
                f"batchnorm=sync can't stand for {name or 'the net'}, a {type(module).__name__} that does more than "
                "torch's BatchNorm: take batchnorm=local."
            )
    copied = copy_of(model)
    if device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(copied)
        return converted
    made: dict[_BatchNorm, GlooBatchNorm] = {}  # one that has several names stays one
    for name, module in list(copied.named_modules(remove_duplicate=False)):
        if isinstance(module, _BatchNorm):
            made[module] = made.get(module) or _ours(module)
            copied.set_submodule(name, made[module])
    return copied


def _ours(module: _BatchNorm) -> GlooBatchNorm:
    assert dist.is_initialized()
    made = GlooBatchNorm(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
    made.weight, made.bias = module.weight, module.bias
    made.running_mean, made.running_var = module.running_mean, module.running_var
    made.num_batches_tracked = module.num_batches_tracked
    return made.train(module.training)
