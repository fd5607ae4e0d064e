"""NHWC: global average pools whose gradient does not bring another format into the backward pass."""

import copy

import pytest
import torch
from torch import nn

from laptime.optimizations.layout import SpreadMean, SpreadMeanPool2d, spread_means
from laptime.optimizations.products import as_product
from laptime.optimizations.small_maps import geometry_of


def pooling(**options) -> SpreadMeanPool2d:
    net = nn.Sequential(nn.AdaptiveAvgPool2d(**options))
    spread_means(net)
    return net[0]


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 3, 5, 7), (3, 4, 6), (2, 3, 1, 1)])
def test_the_pool_and_its_gradients_are_torch_s(shape):
    maps = [torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    for given in maps:
        given.requires_grad_()
    outputs = [pool(given) for pool, given in zip((nn.AdaptiveAvgPool2d(1), pooling(output_size=1)), maps, strict=True)]
    torch.testing.assert_close(outputs[1], outputs[0])
    for output in outputs:
        output.square().sum().backward()
    torch.testing.assert_close(maps[1].grad, maps[0].grad)
    assert torch.autograd.gradgradcheck(SpreadMean.apply, (maps[1].detach().requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_goes_back_through_squeeze_and_excitation_stays_nhwc(dtype):
    """torch's own pool gives a gradient in NCHW there, and each addition goes through both formats value by value."""
    arrived = {}
    for name, pool in (("torch", nn.AdaptiveAvgPool2d(1)), ("laptime", pooling(output_size=(1, 1)))):
        maps = torch.ones(2, 8, 4, 4, dtype=dtype).to(memory_format=torch.channels_last).requires_grad_()
        gate = pool(maps)
        (arrived[name],) = torch.autograd.grad(gate, maps, torch.ones_like(gate), retain_graph=True)
        (both,) = torch.autograd.grad(maps * gate, maps, torch.ones_like(maps))
        assert both.is_contiguous(memory_format=torch.channels_last)
        assert both.dtype is dtype
    assert arrived["torch"].is_contiguous()
    assert arrived["laptime"].stride()[2:] == (0, 0)
    assert torch.equal(*arrived.values())


def test_transforms_and_compilers_go_through_it():
    maps = torch.randn(5, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0))

    def loss(given):
        return SpreadMean.apply(given).square().sum()

    found = torch.func.vmap(torch.func.grad(loss))(maps)
    torch.testing.assert_close(found, torch.stack([torch.func.grad(loss)(each) for each in maps]))
    compiled = torch.compile(pooling(output_size=1), backend="aot_eager", fullgraph=True)
    given = maps[0].requires_grad_()
    (expected,) = torch.autograd.grad(loss(given), given)
    (gradient,) = torch.autograd.grad(compiled(given).square().sum(), given)
    torch.testing.assert_close(gradient, expected)


def test_other_pools_stay_and_hooks_go_along():
    class Own(nn.AdaptiveAvgPool2d):
        pass

    net = nn.Sequential(*(kind(size) for kind in (nn.AdaptiveAvgPool2d, Own) for size in (2, (1, None), 1)))
    seen = []
    net[2].register_forward_hook(lambda *_: seen.append(1))
    changed = copy.deepcopy(net)
    spread_means(changed)
    assert [type(module) for module in changed] == [*[nn.AdaptiveAvgPool2d] * 2, SpreadMeanPool2d, *[Own] * 3]
    changed[2](torch.ones(1, 1, 2, 2))
    assert seen
    assert type(net[2]) is nn.AdaptiveAvgPool2d


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"), [(8, 1, 2, 0), (8, 1, 1, 0), (4, 3, 2, 1), (2, 3, 1, 1)]
)
def test_what_goes_back_through_a_product_is_nhwc(size, kernel, stride, padding):
    """At a residual's join it meets the other branch's gradient, which is."""
    conv = nn.Conv2d(6, 4, kernel, stride, padding, bias=False)
    product = as_product(conv, geometry_of(conv, (size, size)), 8)
    images = torch.randn(3, 6, size, size).to(memory_format=torch.channels_last).requires_grad_()
    found = product(images)
    (gradient,) = torch.autograd.grad(found, images, torch.ones_like(found))
    assert gradient.stride(1) == 1
