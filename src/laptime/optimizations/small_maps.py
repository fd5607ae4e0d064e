"""A convolution on a small map as one matrix product, in three forms; torch is all that it needs.

`laptime explain --code` prints these definitions as they stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

Route = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Images, weight and bias to the output: a bias that was added later would round half precision twice."""


@dataclass(frozen=True)
class Geometry:
    """A convolution on a map: square kernel, stride and padding, without dilation.

    Attributes:
        size: height and width of the map.
        depthwise: whether each channel is convolved by itself; else all of them together.
    """

    size: int
    kernel: int
    stride: int
    padding: int
    depthwise: bool = False

    @property
    def out(self) -> int:
        """Height and width of the output."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1


def nhwc(images: Tensor) -> Tensor:
    """[B, C, H, W] as a view [B, H, W, C]."""
    return images.permute(0, 2, 3, 1)


def nchw(images: Tensor) -> Tensor:
    """[B, H, W, C] as a view [B, C, H, W]."""
    return images.permute(0, 3, 1, 2)


def flat_product(images: Tensor, weight: Tensor, geometry: Geometry, bias: Tensor | None = None) -> Tensor:
    """One patch that covers the map, or a 1x1 kernel: a linear layer over channels."""
    if geometry.kernel == 1:
        # Cut in NHWC: the gradient of a cut is made in the order of what was cut, and all that it meets is NHWC.
        rows = nhwc(images)[:, :: geometry.stride, :: geometry.stride]
    else:
        rows = nhwc(images).reshape(len(images), 1, 1, -1)
    return nchw(F.linear(rows, nhwc(weight).reshape(len(weight), -1), bias))


def biased(rows: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """A product with a bias that is added before it is rounded."""
    return rows @ matrix.t() if bias is None else torch.addmm(bias.to(rows.dtype), rows, matrix.t())


def to_bias(ctx: Any, gradient: Tensor, place: int) -> Tensor | None:
    """The gradient of a bias, which stands at a place among what was given; None where nobody asks for it."""
    wanted = ctx.needs_input_grad[place : place + 1] == (True,)
    return gradient.sum((0, 2, 3), dtype=_sum_type(gradient)) if wanted else None


class BlockProduct(torch.autograd.Function):
    """3x3, stride 1, padding 1 on a 2x2 map: [B, 4 Cin] x [4 Cin, 4 Cout], every pair of pixels meeting in one tap.

    No gradient goes through its gradient: a penalty on one is an error.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        batch, channels = images.shape[:2]
        rows = nhwc(images).reshape(batch, 4 * channels)
        taps = nhwc(weight).to(rows.dtype)
        blocks = [taps[:, 1 - p : 3 - p, 1 - q : 3 - q] for p in range(2) for q in range(2)]
        matrix = torch.stack(blocks).view(4 * len(weight), 4 * channels)
        ctx.save_for_backward(rows, matrix)
        found = biased(rows, matrix, None if bias is None else bias.repeat(4))
        return nchw(found.view(batch, 2, 2, len(weight)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        rows, matrix = ctx.saved_tensors
        (gradient,) = gradients
        batch, outputs = gradient.shape[:2]
        channels = rows.shape[1] // 4
        flat = nhwc(gradient).reshape(batch, 4 * outputs)
        to_images = nchw((flat @ matrix).view(batch, 2, 2, channels))
        blocks = (flat.t() @ rows).view(2, 2, outputs, 2, 2, channels)
        to_weight = blocks.new_zeros(outputs, 3, 3, channels, dtype=_sum_type(blocks))
        for p in range(2):
            for q in range(2):
                to_weight[:, 1 - p : 3 - p, 1 - q : 3 - q] += blocks[p, q]
        return to_images, nchw(to_weight), to_bias(ctx, gradient, 2)


class PatchProduct(torch.autograd.Function):
    """Any square kernel as one product over the patches of the map (im2col); no gradient goes through its gradient."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, geometry: Geometry, bias: Tensor | None = None) -> Tensor:
        patches = _patches(images, geometry)
        matrix = nhwc(weight).to(patches.dtype).reshape(len(weight), -1)
        ctx.save_for_backward(patches, matrix)
        ctx.geometry, ctx.shape = geometry, images.shape
        found = biased(patches, matrix, bias)
        return nchw(found.view(len(images), geometry.out, geometry.out, len(weight)))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
        patches, matrix = ctx.saved_tensors
        (gradient,) = gradients
        g: Geometry = ctx.geometry
        batch, channels, outputs = ctx.shape[0], ctx.shape[1], gradient.shape[1]
        flat = nhwc(gradient).reshape(-1, outputs)
        to_weight = (flat.t() @ patches).view(outputs, g.kernel, g.kernel, channels)
        parts = (flat @ matrix).view(batch, g.out, g.out, g.kernel, g.kernel, channels)
        padded = flat.new_zeros(batch, g.size + 2 * g.padding, g.size + 2 * g.padding, channels)
        span = g.stride * (g.out - 1) + 1
        for i in range(g.kernel):
            for j in range(g.kernel):
                padded[:, i : i + span : g.stride, j : j + span : g.stride] += parts[:, :, :, i, j]
        inner = slice(g.padding, g.padding + g.size)
        to_images, exact = nchw(padded[:, inner, inner]), nchw(to_weight.to(_sum_type(to_weight)))
        return to_images, exact, None, to_bias(ctx, gradient, 3)


def _sum_type(products: Tensor) -> torch.dtype:
    """Gradients of fp32 weights are summed in fp32, also when the products were bf16."""
    return torch.float64 if products.dtype == torch.float64 else torch.float32


def _patches(images: Tensor, g: Geometry) -> Tensor:
    """[B, C, H, W] to patches [B * out * out, kernel * kernel * C]."""
    padded = F.pad(nhwc(images), (0, 0) + (g.padding,) * 4).contiguous()
    batch, row, column, channel = padded.stride()
    view = padded.as_strided(
        (len(images), g.out, g.out, g.kernel, g.kernel, images.shape[1]),
        (batch, g.stride * row, g.stride * column, row, column, channel),
    )
    return view.reshape(len(images) * g.out * g.out, -1)


def dense_route(geometry: Geometry, largest: int) -> Route | None:
    """The product that computes a convolution of all channels together; None where the map is too large for one."""
    if geometry.size > largest:
        return None
    if geometry.padding == 0 and (geometry.kernel in (1, geometry.size)):
        return lambda images, weight, bias: flat_product(images, weight, geometry, bias)
    if geometry == Geometry(2, 3, 1, 1):
        return lambda images, weight, bias: in_precision(BlockProduct.apply, images, weight, bias)
    if geometry.stride > 1:
        return lambda images, weight, bias: in_precision(PatchProduct.apply, images, weight, geometry, bias)
    return None


def in_precision(product: Callable[..., Tensor], images: Tensor, *rest: Any) -> Tensor:
    """Custom functions are unknown to autocast, so its precision is applied here, as for a convolution.

    It leaves float64 as it is.
    """
    device = images.device.type
    # On shapes alone there is none. Asking torch whether there is breaks a compiled graph in 2.11.
    if not images.is_meta and images.dtype != torch.float64 and torch.is_autocast_enabled(device):
        images = images.to(torch.get_autocast_dtype(device))
    return product(images, *rest)


class ProductConv2d(nn.Conv2d):
    """A convolution computed as a matrix product; its weight keeps its shape and name, and it its class.

    A penalty on the weights of all convolutions finds it so, and what asks for its channels.

    Attributes:
        error: what is raised where it meets a map of another size than it was made for.
    """

    error: type[Exception] = ValueError

    def __init__(self, conv: nn.Conv2d, geometry: Geometry, route: Route) -> None:
        super().__init__(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,  # type: ignore[arg-type]
            conv.stride,  # type: ignore[arg-type]
            conv.padding,  # type: ignore[arg-type]
            groups=conv.groups,
            bias=False,
            device="meta",
        )
        self.geometry, self._product = geometry, route
        self.weight, self.bias = conv.weight, conv.bias
        self.train(conv.training)
        # A kernel of one pixel is one product whatever the map; one that was cropped to it has more taps elsewhere.
        plain = geometry.padding == 0 and not geometry.depthwise and not hasattr(conv, "border")
        self._anywhere = geometry.kernel == 1 and plain

    def forward(self, images: Tensor) -> Tensor:
        """[B, Cin, H, W] to [B, Cout, out, out]."""
        height, width = images.shape[-2:]
        side = self.geometry.size
        if not self._anywhere and not height == width == side:
            raise self.error(
                f"a product for maps of {side}x{side} met one of {height}x{width}: leave products out, or give images "
                "of one size."
            )
        return self._product(images, self.weight, self.bias)


def is_whole(conv: nn.Module) -> bool:
    """Whether a module is a convolution and nothing more: torch's class or a cropped one, with no hook and its weight.

    What a subclass, a hook or a parametrization adds (dropout of weights, their standardization) no product would do.
    """
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    own = type(conv) is nn.Conv2d or (isinstance(conv, nn.Conv2d) and hasattr(conv, "border"))
    changed = not vars(conv).keys().isdisjoint(("forward", "_conv_forward")) or any(vars(conv)[kind] for kind in kinds)
    return own and not changed and conv._parameters.get("weight") is not None


def geometry_of(conv: nn.Conv2d, size: tuple[int, ...]) -> Geometry | None:
    """The geometry of a convolution on a map; None where a product does not fit."""
    if not is_whole(conv):
        return None
    depthwise = conv.groups == conv.in_channels == conv.out_channels > 1
    plain = (conv.groups == 1 or depthwise) and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
    border = getattr(conv, "border", ())
    padding = border if depthwise and any(border) else conv.padding  # a cropped kernel pads by itself
    square = all(len(set(pair)) == 1 for pair in (conv.kernel_size, conv.stride, padding, conv.dilation, size))
    if not plain or not square or conv.dilation[0] != 1 or (any(border) and not depthwise):
        return None
    return Geometry(size[0], conv.kernel_size[0], conv.stride[0], int(padding[0]), depthwise)


def has_dead_taps(g: Geometry) -> bool:
    """Whether all outputs of a padded kernel are one: taps at its border then meet nothing but padding."""
    return g.padding > 0 and g.out == 1 and g.kernel > 1
