"""Stage kernels, small maps as matrix products: where a map is no larger than a kernel, a convolution is one product.

Convolution kernels are made for large maps; on 2x2 maps they spend most of their time on borders. Three forms cover
what small inputs need: a patch that covers the map (or a 1x1 kernel) is a plain linear layer; a 3x3 kernel on a 2x2
map is a dense product whose matrix is gathered from the taps; a strided kernel on a 4x4 map is a product over patches.
All are the same sums in another order. Of a depthwise convolution the gradient of the weights alone becomes a product
(`depthwise.py`). Which of them gains depends on batch, precision and machine, so each layer is timed both ways, alike
ones once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from laptime.errors import RunError, UsageError
from laptime.optimizations.base import Options, Recipe
from laptime.optimizations.dead_taps import Crop, conv_sizes
from laptime.optimizations.depthwise import DepthwiseProduct
from laptime.optimizations.graph import cuda_record, on_side_stream
from laptime.optimizations.passes import samples_of_a_pass
from laptime.optimizations.precision import AUTOCAST
from laptime.optimizations.shapes import ShapesUnknownError, passes_of, seen
from laptime.optimizations.small_maps import (
    Geometry,
    ProductConv2d,
    Route,
    dense_route,
    geometry_of,
    has_dead_taps,
    in_precision,
)
from laptime.values.copies import copy_of

_ROUNDS = 3
# A layer is replaced when the product takes less than this share of the convolution's time.
_WORTH = 0.95
# Samples that a layer is timed with at most on a CPU: beyond them both ways grow alike, and a net of 200 layers takes
# minutes.
_MOST_TIMED = 512
# On a GPU: steps before a capture, in which cuDNN and cuBLAS make themselves ready, and replays that are timed at once.
_EAGER, _REPLAYS = 3, 20
# More names than ResNet-18 has layers that a note would have to name.
_MOST_NAMED = 20


def route_of(geometry: Geometry, largest: int) -> Route | None:
    """The product that computes a convolution or a depthwise one's gradient; None where none is worth trying."""
    if not geometry.depthwise:
        return dense_route(geometry, largest)
    if geometry.size > largest and geometry.stride == 1:
        return None
    return lambda images, weight, bias: in_precision(DepthwiseProduct.apply, images, weight, geometry, bias)


def as_product(conv: nn.Conv2d, geometry: Geometry, largest: int) -> ProductConv2d | None:
    """A convolution as a product, with what was cropped out of its kernel; None where none is worth trying."""
    route = route_of(geometry, largest)
    if route is None:
        return None
    product = ProductConv2d(conv, geometry, route)
    product.error = RunError
    cut = getattr(conv, "crop", None)
    if isinstance(cut, Crop):
        product.crop = cut
    return product


def products(recipe: Recipe, options: Options) -> Recipe:
    """Replaces the convolutions on small maps whose product is faster here, at this batch and precision.

    Where dead taps are left in, layers that have them stay convolutions: a product over the live taps alone would be
    another way to remove them. What was chosen is noted in `settled`, so that a check and later rounds repeat it.
    """
    wanted, largest = str(options["layers"]), int(options["largest"])
    model, chosen, timed = copy_of(recipe.model), list[str](), dict[object, bool]()
    try:
        with torch.no_grad():  # a loss that asks for gradients may differentiate them, which no product bears
            sizes = seen(passes_of(recipe), partial(conv_sizes, recipe.model))
    except ShapesUnknownError as unknown:
        return replace(recipe, notes=(*recipe.notes, f"no layer as product: {unknown}"))
    for name, met in sizes.items():
        conv = model.get_submodule(name)
        if not isinstance(conv, nn.Conv2d):
            continue
        # Images of several sizes: a product stands only where the map has the same size for all of them.
        geometry = geometry_of(conv, met[0]) if len(met) == 1 else None
        product = None if geometry is None or has_dead_taps(geometry) else as_product(conv, geometry, largest)
        if product is None:
            continue
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


def _gains(conv: nn.Conv2d, product: ProductConv2d, recipe: Recipe, timed: dict[object, bool]) -> bool:
    alike = (product.geometry, conv.weight.shape, conv.bias is None)
    if alike not in timed:
        timed[alike] = recipe.world.agreed(faster(conv, product, recipe))  # all ranks: they must train one net
    return timed[alike]


def faster(conv: nn.Conv2d, product: ProductConv2d, recipe: Recipe) -> bool:
    """Times forward and backward of one layer both ways, in turn, and compares the fastest rounds."""
    on_cuda = recipe.device.type == "cuda"
    local = samples_of_a_pass(recipe)
    shape = (
        local if on_cuda else min(local, _MOST_TIMED),
        conv.in_channels,
        product.geometry.size,
        product.geometry.size,
    )
    images = torch.randn(shape, dtype=conv.weight.dtype, device=recipe.device)
    if recipe.channels_last:
        images = images.to(memory_format=torch.channels_last)
    images.requires_grad_()
    best = [float("inf"), float("inf")]
    timers = [(graphed if on_cuda else launched)(m.to(recipe.device), images, recipe) for m in (conv, product)]
    for _ in range(_ROUNDS + 1):  # the first round is the slowest and never the best
        for side, seconds in enumerate(timers):
            best[side] = min(best[side], seconds())
    return best[1] < _WORTH * best[0]


def launched(layer: nn.Module, images: Tensor, recipe: Recipe) -> Callable[[], float]:
    """Times a layer as it is launched."""
    return lambda: layer_s(layer, images, recipe)


def graphed(layer: nn.Module, images: Tensor, recipe: Recipe) -> Callable[[], float]:
    """Times a layer within a CUDA graph, by the device's clock: what its launches take is no part of a recorded step.

    A product of several kernels would else lose against a convolution of few, at any batch.
    """

    def work() -> tuple[Tensor, ...]:
        return forward_and_backward(layer, images, recipe)

    for _ in range(_EAGER):
        on_side_stream(work)
    replay = cuda_record(work)

    def seconds() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_REPLAYS):
            replay()
        end.record()
        end.synchronize()  # waits for the device
        return float(begin.elapsed_time(end)) / 1e3 / _REPLAYS

    return seconds


def layer_s(layer: nn.Module, images: Tensor, recipe: Recipe) -> float:
    """Seconds of one layer's forward and backward with their launches."""
    begin = time.perf_counter()
    forward_and_backward(layer, images, recipe)
    if recipe.device.type == "cuda":
        torch.cuda.synchronize(recipe.device)  # waits for the device
    return time.perf_counter() - begin


def forward_and_backward(layer: nn.Module, images: Tensor, recipe: Recipe) -> tuple[Tensor, ...]:
    """The gradients of one layer in the run's precision; what needs none gets none."""
    dtype = AUTOCAST.get(recipe.precision, torch.bfloat16)
    with torch.autocast(recipe.device.type, dtype, enabled=recipe.precision in AUTOCAST):
        found = layer(images)
    wanted = [t for t in (images, *layer.parameters()) if t.requires_grad]
    return torch.autograd.grad(found, wanted, torch.ones_like(found)) if wanted else ()
