"""Depthwise convolutions: their weights' gradient as a product, cropped kernels, and a small net of their kind."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.plain_states import dead
from tests.unit.conftest import make_data, make_spec
from torch import nn
from torchvision.models.efficientnet import EfficientNet, MBConvConfig

from laptime.data.tensors import ImageData, Split
from laptime.engine import build as building
from laptime.engine.build import build, make_recipe
from laptime.engine.check import check_one_step
from laptime.engine.distances import relative_error
from laptime.engine.loop import train_epoch
from laptime.engine.plain import plain_gradients, plain_state
from laptime.engine.reset import reset, snapshot
from laptime.optimizations.dead_taps import crop, crops
from laptime.optimizations.depthwise import DepthwiseProduct
from laptime.optimizations.live_taps import live_axes
from laptime.optimizations.products import as_product
from laptime.optimizations.small_maps import Geometry, ProductConv2d, geometry_of
from laptime.spec import OptimizationSpec
from laptime.workloads.cifar import Cifar

CHANNELS = 6


def both(one: nn.Module, other: nn.Module, size: int) -> None:
    """Output and gradients of the images are equal in float64."""
    torch.manual_seed(0)
    images = [torch.randn(3, CHANNELS, size, size, dtype=torch.float64).requires_grad_() for _ in range(2)]
    images[1].data.copy_(images[0].data)
    outputs = [module(x) for module, x in zip((one, other), images, strict=True)]
    torch.testing.assert_close(outputs[1], outputs[0])
    for output in outputs:
        (output * torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view(output.shape)).sum().backward()
    torch.testing.assert_close(images[1].grad, images[0].grad)


def depthwise(kernel: int, stride: int, padding: int, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, CHANNELS, kernel, stride, padding, dilation, CHANNELS, bias=False).double()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [(2, 3, 1, 1), (4, 5, 1, 2), (4, 5, 2, 2), (8, 3, 2, 1), (5, 3, 2, 0), (12, 5, 2, 2)],
)
def test_the_product_is_the_convolution(size, kernel, stride, padding, layout):
    conv = depthwise(kernel, stride, padding).to(memory_format=layout)
    product = as_product(conv, geometry_of(conv, (size, size)), 8)
    both(conv, product, size)
    assert conv.weight is product.weight
    first = conv.weight.grad.clone() / 2  # both passes added theirs
    conv.zero_grad()
    both(conv, conv, size)
    torch.testing.assert_close(first, conv.weight.grad / 2)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_product_does_not_copy_channel_by_channel(layout):
    channels = 64
    images = torch.randn(3, channels, 4, 4).to(memory_format=layout)
    weight = torch.randn(channels, 1, 5, 5, requires_grad=True)
    out = DepthwiseProduct.apply(images, weight, Geometry(4, 5, 1, 2))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        out.sum().backward()
    calls = {row.key: row.count for row in profile.key_averages()}
    assert calls["aten::bmm"] == 1
    assert calls.get("aten::copy_", 0) < channels


def test_a_product_passes_on_no_gradient_that_nobody_asks_for():
    weight = torch.randn(CHANNELS, 1, 3, 3, requires_grad=True)
    DepthwiseProduct.apply(torch.randn(2, CHANNELS, 2, 2), weight, Geometry(2, 3, 1, 1)).sum().backward()
    assert weight.grad.shape == weight.shape


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation", "left"),
    [
        (2, 5, 1, 2, 1, (3, 3)),  # the last stage of EfficientNet-B5 on 64x64
        (1, 3, 1, 1, 1, (1, 1)),
        (1, 5, 2, 2, 1, (1, 1)),
        (2, 5, 2, 2, 1, (2, 2)),
        (3, 3, 1, 4, 4, (1, 1)),
        (4, 3, 1, 2, 2, None),
        (2, 3, 2, 2, 2, (1, 1)),
    ],
)
def test_cropped_depthwise_strided_and_dilated_kernels_are_exact(size, kernel, stride, padding, dilation, left):
    conv = depthwise(kernel, stride, padding, dilation)
    cropped = crop(conv, (size, size))
    if left is None:
        assert cropped is None
        assert live_axes(conv, (size, size)) is None
        return
    assert cropped.kernel_size == left
    both(conv, cropped, size)
    alone = torch.zeros_like(conv.weight)
    alone[cropped.crop.live] = cropped.weight.grad
    torch.testing.assert_close(alone, conv.weight.grad)
    assert conv.weight.grad[dead(cropped.crop)].abs().max() == 0


def test_a_cropped_kernel_becomes_a_product_too():
    conv = depthwise(5, 1, 2)
    cropped = crop(conv, (2, 2))
    geometry = geometry_of(cropped, (2, 2))
    assert (geometry.kernel, geometry.padding, geometry.depthwise) == (3, 1, True)
    product = as_product(cropped, geometry, 8)
    both(conv, product, 2)
    assert product.crop is cropped.crop


class Small(Cifar):
    """A few blocks of EfficientNet's kind, with everything random that the large one has."""

    def make_model(self, classes, weights, channels=3):
        blocks = [MBConvConfig(1, 3, 2, 8, 8, 1, 1, 1), MBConvConfig(4, 5, 2, 8, 16, 2, 1, 1)]
        blocks.append(MBConvConfig(4, 5, 2, 16, 16, 2, 1, 1))
        norm = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)
        net = EfficientNet(blocks, 0.4, 0.5, classes, norm, last_channel=32)
        net.features[0][0] = nn.Conv2d(channels, 8, 3, 2, 1, bias=False)
        return net


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(building, "find", lambda name: Small())


EXACT = (
    "resident",
    "no-reads",
    "threads",
    "channels-last",
    "fused-optimizer",
    "dead-taps",
    "products:all",
    "workers:2",
)


def chosen(text: str) -> tuple[OptimizationSpec, ...]:
    name, _, value = text.partition(":")
    options = {"layers": value} if name == "products" else {"count": int(value)} if value else {}
    return (OptimizationSpec(name=name, options=options),)


def trained(optimizations, data):
    """Losses and weights of three epochs in float64, after a reset."""
    recipe = make_recipe(make_spec(optimizations=optimizations, batch_size=8), data, optimizations)
    parts = build(recipe, mark=lambda _: None)
    parts.model.double()
    parts.optimizer = type(parts.optimizer)(parts.model.parameters(), lr=1e-3, **recipe.optimizer_options)
    forward = parts.forward
    parts.forward = lambda model, batch: forward(model, replace(batch, inputs=batch.inputs.double()))
    reset(parts, recipe, snapshot(parts))
    losses = [float(c.loss_sum) for epoch in range(3) for c in train_epoch(parts, epoch)]
    return losses, plain_state(parts.model)


@pytest.mark.parametrize("text", EXACT)
def test_dropout_and_stochastic_depth_draw_alike_in_all_exact_variants(small, text):
    data = make_data(train=24)
    losses, state = trained((), data)
    found_losses, found = trained(chosen(text), data)
    assert found_losses == pytest.approx(losses, rel=1e-9)
    assert relative_error(found, state) < 1e-7


@pytest.mark.parametrize("text", ["dead-taps", "products:all", "channels-last", "bf16", "ddp"])
def test_one_step_is_compared_with_what_is_random_held_still(small, text):
    check = check_one_step(make_spec(optimizations=chosen(text)), make_data(), 16)
    assert check.passed, check


def test_dead_taps_and_products_are_found_in_the_whole_net(small):
    names = (*chosen("dead-taps"), *chosen("products:all"))
    recipe = make_recipe(make_spec(optimizations=names), make_data(), names)
    kinds = [m for m in recipe.model.modules() if isinstance(m, ProductConv2d) and m.geometry.depthwise]
    assert [m.geometry.size for m in kinds] == [16, 8, 4, 4, 2]
    assert crops(recipe.model)
    assert plain_gradients(recipe.model).keys() == dict(recipe.model.named_parameters()).keys()


@pytest.mark.parametrize("bands", [1, 13])
def test_images_of_bands_are_equal_in_both_loaders(small, bands):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 4001, (10, 32, 32, bands), dtype=torch.int16, generator=generator)
    split = Split(images, torch.arange(10) % 3)
    data = ImageData(split, split, ("a", "b", "c"), (0.3,) * bands, (0.1,) * bands, 4000)
    loaded = []
    for text in ("", "resident"):
        names = chosen(text) if text else ()
        parts = build(make_recipe(make_spec(optimizations=names), data, names), mark=lambda _: None)
        loaded.append(torch.cat([batch.inputs for batch in parts.loader.epoch(0)]))
        assert all(float(c.loss_sum) < 1e3 for c in train_epoch(parts, 0))
    assert torch.equal(*loaded)
    assert loaded[0].shape == (10, bands, 32, 32)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [(12, 5, 2, 2), (4, 5, 2, 2), (8, 3, 1, 1), (7, 3, 2, 1), (12, 3, 2, 1), (11, 5, 3, 0), (6, 2, 2, 2)],
)
def test_gradients_in_bf16_are_those_of_fp32_but_for_rounding(layout, size, kernel, stride, padding):
    torch.manual_seed(0)
    plain = torch.randn(4, CHANNELS, size, size).bfloat16().to(memory_format=layout)
    wide = torch.randn(CHANNELS, 1, kernel, kernel).bfloat16().float()
    found = []
    for images, weight in ((plain, wide), (plain.float(), wide)):
        x, w = images.detach().clone().requires_grad_(), weight.clone().requires_grad_()
        if images.dtype is torch.bfloat16:
            out = DepthwiseProduct.apply(x, w, Geometry(size, kernel, stride, padding))
        else:
            out = nn.functional.conv2d(x, w, None, stride, padding, 1, CHANNELS)
        gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        out.backward(gradient.to(out.dtype))
        assert x.grad.dtype is images.dtype
        assert x.grad.is_contiguous(memory_format=layout)
        assert w.grad.dtype is torch.float32
        found.append((x.grad.float(), w.grad))
    for half, whole in zip(*found, strict=True):
        assert float((half - whole).norm() / whole.norm()) < 1e-2
