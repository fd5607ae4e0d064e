"""Depthwise convolutions: on small maps the gradient of their weights is one matrix product a channel.

On a CPU, forward and the gradient of the images take little; that of the weights takes ten times as much where the
kernel is larger than 3x3 or than the map (docs/log.md). A channel's gradient is a sum over samples of pixel times
output's gradient, gathered by the tap in which the two meet: [Q, B] x [B, P] and one sum over pairs.

The gradient of a strided one's images takes a hundred times as long in bf16 as in fp32, on some machines in NHWC alone.
In half precision it is computed as what it is by definition: a plain convolution with the kernel turned round, of the
output's gradient with zeros between its values. Where the map is large, a kernel of more than 3x3 has the gradient of
its weights computed in fp32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.optimizations.small_maps import Geometry, to_bias

# Side of the largest map whose pairs of pixel and output are few enough to be multiplied all.
LARGEST = 8


@cache
def meetings(window: Geometry, device: torch.device, dtype: torch.dtype) -> Tensor:
    """In which tap a pixel meets an output: ones [Q * P, kernel * kernel], a row of zeros where in none.

    Made once for a device, since a copy from the host in each step would have it waited for.
    """
    size, out = window.size, window.out
    pixels, outputs = torch.arange(size), torch.arange(out) * window.stride - window.padding
    taps = pixels[:, None] - outputs[None]  # along one side [size, out]
    rows, columns = taps.view(size, 1, out, 1), taps.view(1, size, 1, out)
    inside = (rows >= 0) & (rows < window.kernel) & (columns >= 0) & (columns < window.kernel)
    tap = torch.where(inside, rows * window.kernel + columns, window.kernel**2)
    return F.one_hot(tap.flatten(), window.kernel**2 + 1)[:, :-1].to(device, dtype)


class DepthwiseProduct(torch.autograd.Function):
    """A depthwise convolution whose weights' gradient is a product; the rest is the convolution's own."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, window: Geometry, bias: Tensor | None = None) -> Tensor:
        taps = weight.to(images.dtype)
        ctx.save_for_backward(images, taps)
        ctx.window, ctx.wide = window, weight.dtype
        added = None if bias is None else bias.to(images.dtype)
        return F.conv2d(images, taps, added, window.stride, window.padding, 1, len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None, Tensor | None]:
        images, taps = ctx.saved_tensors
        to_images = _to_images(images, taps, gradients[0], ctx.window) if ctx.needs_input_grad[0] else None
        to_weight = _to_weight(images, taps, gradients[0], ctx.window).to(ctx.wide)
        return to_images, to_weight, None, to_bias(ctx, gradients[0], 3)


def _to_images(images: Tensor, taps: Tensor, gradient: Tensor, window: Geometry) -> Tensor:
    half = images.dtype in (torch.bfloat16, torch.float16)
    if not half or window.stride == 1 or window.padding >= window.kernel:
        return _own(images, taps, gradient, window, 0)
    return _spread(taps, gradient, window)


def _spread(taps: Tensor, gradient: Tensor, window: Geometry) -> Tensor:
    """The gradient of the images [B, C, size, size], by a stride of 1."""
    batch, channels = gradient.shape[:2]
    side = window.size + 2 * window.padding - window.kernel + 1
    nhwc = gradient.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if nhwc else torch.contiguous_format
    zeros = gradient.new_zeros(batch, channels, side, side).contiguous(memory_format=layout)
    zeros[:, :, :: window.stride, :: window.stride] = gradient
    return F.conv2d(zeros, taps.flip(2, 3), None, 1, window.kernel - 1 - window.padding, 1, channels)


def _own(images: Tensor, taps: Tensor, gradient: Tensor, window: Geometry, place: int) -> Tensor:
    """One of the convolution's own gradients: of the images (0) or of the weights (1)."""
    stride, padding = [window.stride] * 2, [window.padding] * 2
    mask = [place == 0, place == 1, False]
    found: list[Tensor] = torch.ops.aten.convolution_backward(
        gradient, images, taps, None, stride, padding, [1, 1], False, [0, 0], len(taps), mask
    )
    return found[place]


def _by_channel(maps: Tensor) -> Tensor:
    """[B, C, H, W] as [C, B, H * W], copied where a row would lie apart: `bmm` copies channel by channel then."""
    channels = maps.flatten(2).permute(1, 0, 2)
    return channels if channels.stride(-1) == 1 else channels.contiguous()


def _to_weight(images: Tensor, taps: Tensor, gradient: Tensor, window: Geometry) -> Tensor:
    """[B, C, H, W] and the output's gradient to [C, 1, kernel, kernel], products summed in fp32 or better."""
    if window.size > LARGEST:
        wide = images.dtype if window.kernel <= 3 else torch.promote_types(images.dtype, torch.float32)
        return _own(images.to(wide), taps.to(wide), gradient.to(wide), window, 1)
    channels = images.shape[1]
    pairs = torch.bmm(_by_channel(images).mT, _by_channel(gradient)).flatten(1)
    exact = torch.promote_types(pairs.dtype, torch.float32)
    return (pairs.to(exact) @ meetings(window, pairs.device, exact)).view(channels, 1, window.kernel, window.kernel)
