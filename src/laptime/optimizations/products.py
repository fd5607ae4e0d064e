"""Stage kernels, small maps as matrix products: where a map is no larger than a kernel, a convolution is one product.

Convolution kernels are made for large maps; on 2x2 maps they spend most of their time on borders. Three forms cover
what small inputs need: a patch that covers the map (or a 1x1 kernel) is a plain linear layer; a 3x3 kernel on a 2x2
map is a dense product whose matrix is gathered from the taps; a strided kernel on a 4x4 map is a product over patches.
All are the same sums in another order. Of a depthwise convolution the gradient of the weights alone becomes a product
(`depthwise.py`). Which of them gains depends on batch, precision and machine, so each layer is timed both ways, alike
ones once.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.errors import UsageError
from laptime.optimizations.base import Options, Recipe
from laptime.optimizations.dead_taps import Crop, conv_sizes
from laptime.optimizations.depthwise import DepthwiseProduct, Window
from laptime.optimizations.precision import AUTOCAST
from laptime.optimizations.shapes import ShapesUnknownError

_ROUNDS = 3
# A layer is replaced when the product takes less than this share of the convolution's time.
_WORTH = 0.95
# Samples that a layer is timed with at most: beyond them both ways grow alike, and a net of 200 layers takes minutes.
_MOST_TIMED = 512
# More names than ResNet-18 has layers that a note would have to name.
_MOST_NAMED = 20

Route = Callable[[Tensor, Tensor], Tensor]


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


def flat_product(images: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """One patch that covers the map, or a 1x1 kernel: a linear layer over channels."""
    if geometry.kernel == 1:
        rows = nhwc(images[:, :, :: geometry.stride, :: geometry.stride])
    else:
        rows = nhwc(images).reshape(len(images), 1, 1, -1)
    return nchw(F.linear(rows, nhwc(weight).reshape(len(weight), -1)))


class BlockProduct(torch.autograd.Function):
    """3x3, stride 1, padding 1 on a 2x2 map: [B, 4 Cin] x [4 Cin, 4 Cout], every pair of pixels meeting in one tap."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor) -> Tensor:
        batch, channels = images.shape[:2]
        rows = nhwc(images).reshape(batch, 4 * channels)
        taps = nhwc(weight).to(rows.dtype)
        blocks = [taps[:, 1 - p : 3 - p, 1 - q : 3 - q] for p in range(2) for q in range(2)]
        matrix = torch.stack(blocks).view(4 * len(weight), 4 * channels)
        ctx.save_for_backward(rows, matrix)
        return nchw((rows @ matrix.t()).view(batch, 2, 2, len(weight)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
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
        return to_images, nchw(to_weight)


class PatchProduct(torch.autograd.Function):
    """Any square kernel as one product over the patches of the map (im2col)."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
        patches = _patches(images, geometry)
        matrix = nhwc(weight).to(patches.dtype).reshape(len(weight), -1)
        ctx.save_for_backward(patches, matrix)
        ctx.geometry, ctx.shape = geometry, images.shape
        return nchw((patches @ matrix.t()).view(len(images), geometry.out, geometry.out, len(weight)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
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
        return nchw(padded[:, inner, inner]), nchw(to_weight.to(_sum_type(to_weight))), None


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


def route_of(geometry: Geometry, largest: int) -> Route | None:
    """The product that computes a convolution; None where the map is too large for one."""
    if geometry.depthwise and (geometry.size <= largest or geometry.stride > 1):
        window = Window(geometry.size, geometry.kernel, geometry.stride, geometry.padding)
        return lambda images, weight: _in_precision(DepthwiseProduct.apply, images, weight, window)
    if geometry.size > largest or geometry.depthwise:
        return None
    if geometry.padding == 0 and (geometry.kernel in (1, geometry.size)):
        return lambda images, weight: flat_product(images, weight, geometry)
    if geometry == Geometry(2, 3, 1, 1):
        return lambda images, weight: _in_precision(BlockProduct.apply, images, weight)
    if geometry.stride > 1:
        return lambda images, weight: _in_precision(PatchProduct.apply, images, weight, geometry)
    return None


def _in_precision(product: Callable[..., Tensor], images: Tensor, *rest: Any) -> Tensor:
    """Custom functions are unknown to autocast, so its precision is applied here, as for a convolution."""
    device = images.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        images = images.to(torch.get_autocast_dtype(device))
    return product(images, *rest)


class ProductConv2d(nn.Module):
    """A convolution computed as a matrix product; its weight keeps its shape and name."""

    def __init__(self, conv: nn.Conv2d, geometry: Geometry, largest: int) -> None:
        super().__init__()
        route = route_of(geometry, largest)
        assert route is not None
        self.geometry, self._product = geometry, route
        self.weight, self.bias = conv.weight, conv.bias
        self.crop: Crop | None = getattr(conv, "crop", None)

    def forward(self, images: Tensor) -> Tensor:
        """[B, Cin, H, W] to [B, Cout, out, out]."""
        found = self._product(images, self.weight)
        return found if self.bias is None else found + self.bias.view(1, -1, 1, 1).to(found.dtype)


def geometry_of(conv: nn.Conv2d, size: tuple[int, int]) -> Geometry | None:
    """The geometry of a convolution on a map; None where a product does not fit."""
    depthwise = conv.groups == conv.in_channels == conv.out_channels > 1
    plain = (conv.groups == 1 or depthwise) and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
    border = getattr(conv, "border", ())
    padding = border if depthwise and any(border) else conv.padding  # a cropped kernel pads by itself
    square = all(len(set(pair)) == 1 for pair in (conv.kernel_size, conv.stride, padding, conv.dilation, size))
    if not plain or not square or conv.dilation[0] != 1 or (any(border) and not depthwise):
        return None
    return Geometry(size[0], conv.kernel_size[0], conv.stride[0], int(padding[0]), depthwise)


def products(recipe: Recipe, options: Options) -> Recipe:
    """Replaces the convolutions on small maps whose product is faster here, at this batch and precision.

    Where dead taps are left in, layers that have them stay convolutions: a product over the live taps alone would be
    another way to remove them. What was chosen is noted in `settled`, so that a check and later rounds repeat it.
    """
    wanted, largest = str(options["layers"]), int(options["largest"])
    model, chosen, timed = copy.deepcopy(recipe.model), list[str](), dict[object, bool]()
    try:
        sizes = conv_sizes(recipe)
    except ShapesUnknownError as unknown:
        return replace(recipe, notes=(*recipe.notes, f"no layer as product: {unknown}"))
    for name, met in sizes.items():
        conv = model.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        # Images of several sizes: a product stands only where the map has the same size for all of them.
        geometry = geometry_of(conv, met[0]) if len(met) == 1 else None
        if geometry is None or _has_dead_taps(geometry) or route_of(geometry, largest) is None:
            continue
        product = ProductConv2d(conv, geometry, largest)
        if wanted == "all" or name in wanted.split("/") or (wanted == "probe" and _gains(conv, product, recipe, timed)):
            model.set_submodule(name, product)
            chosen.append(name)
    missing = set(wanted.split("/")) - {"probe", "all", "none", *chosen}
    if missing:
        raise UsageError(f"products:layers names {min(missing)!r}, which no product can stand for: leave it out.")
    settled: dict[str, Options] = {**recipe.settled, "products": {"layers": "/".join(chosen) or "none"}}
    note = f"as products: {_in_words(chosen) or 'no layer gains at this batch and precision'}"
    return replace(recipe, model=model, settled=settled, notes=(*recipe.notes, note))


def _in_words(names: list[str]) -> str:
    """EfficientNet-B5 has over two hundred such layers; all of them stand in `settled`."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _has_dead_taps(g: Geometry) -> bool:
    return g.padding > 0 and g.out == 1 and g.kernel > 1


def _gains(conv: nn.Conv2d, product: ProductConv2d, recipe: Recipe, timed: dict[object, bool]) -> bool:
    alike = (product.geometry, conv.weight.shape, conv.bias is None)
    if alike not in timed:
        timed[alike] = recipe.world.agreed(faster(conv, product, recipe))  # all ranks: they must train one net
    return timed[alike]


def faster(conv: nn.Conv2d, product: ProductConv2d, recipe: Recipe) -> bool:
    """Times forward and backward of one layer both ways, in turn, and compares the fastest rounds."""
    local = min(-(-recipe.batch_size // recipe.world.size), _MOST_TIMED)
    shape = (local, conv.in_channels, product.geometry.size, product.geometry.size)
    images = torch.randn(shape, device=recipe.device)
    if recipe.channels_last:
        images = images.to(memory_format=torch.channels_last)
    images.requires_grad_()
    sides = (conv.to(recipe.device), product.to(recipe.device))
    best = [float("inf"), float("inf")]
    for _ in range(_ROUNDS + 1):  # the first round is the slowest and never the best
        for side, module in enumerate(sides):
            best[side] = min(best[side], _layer_s(module, images, recipe))
    return best[1] < _WORTH * best[0]


def _layer_s(layer: nn.Module, images: Tensor, recipe: Recipe) -> float:
    begin = time.perf_counter()
    dtype = AUTOCAST.get(recipe.precision, torch.bfloat16)
    with torch.autocast(recipe.device.type, dtype, enabled=recipe.precision in AUTOCAST):
        found = layer(images)
    torch.autograd.grad(found, (images, *layer.parameters()), torch.ones_like(found))
    if recipe.device.type == "cuda":
        torch.cuda.synchronize(recipe.device)  # waits for the device
    return time.perf_counter() - begin
