"""Products are the same sums: equal in float64 to the convolutions that they stand for."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from laptime.engine.plain import plain_state
from laptime.errors import RunError, UsageError
from laptime.optimizations.dead_taps import crop, dead_taps
from laptime.optimizations.products import _in_words, as_product, products, route_of
from laptime.optimizations.small_maps import Geometry, ProductConv2d, geometry_of

GEOMETRIES = [
    Geometry(size, kernel, stride, padding)
    for size in range(1, 9)
    for kernel in range(1, 5)
    for stride in (1, 2, 3)
    for padding in (0, 1, 2)
    if size + 2 * padding >= kernel and route_of(Geometry(size, kernel, stride, padding), 8) is not None
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_equals_its_convolution(geometry, bias):
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 5, geometry.kernel, geometry.stride, geometry.padding, bias=bias).double()
    product = as_product(conv, geometry, 8)
    images = torch.randn(4, 3, geometry.size, geometry.size, dtype=torch.float64, requires_grad=True)
    leaves = (images, *conv.parameters())
    expected = conv(images)
    found = product(images)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    direction = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, leaves, direction), torch.autograd.grad(expected, leaves, direction), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_what_goes_over_a_net_finds_a_product_as_the_convolution_it_was():
    conv = nn.Conv2d(4, 6, 3, stride=2, padding=1).eval()
    product = as_product(conv, Geometry(4, 3, 2, 1), 8)
    assert [m.weight is conv.weight for m in nn.Sequential(product).modules() if isinstance(m, nn.Conv2d)] == [True]
    asked = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "groups", "bias", "training")
    assert [getattr(product, name) for name in asked] == [getattr(conv, name) for name in asked]


@pytest.mark.parametrize("geometry", [Geometry(2, 3, 1, 1), Geometry(8, 3, 4, 1), Geometry(2, 2, 1, 0)], ids=str)
def test_a_bias_is_added_before_the_sum_is_rounded(geometry):
    torch.manual_seed(0)
    conv = nn.Conv2d(16, 32, geometry.kernel, geometry.stride, geometry.padding)
    images = torch.randn(16, 16, geometry.size, geometry.size)
    with torch.autocast("cpu", torch.bfloat16):
        found, exact = as_product(conv, geometry, 8)(images), conv(images)
    assert (found != exact).float().mean() < 0.01  # three tenths of all values where it was rounded twice


def test_a_padded_kernel_as_large_as_its_map_is_no_flat_product():
    assert route_of(Geometry(3, 3, 1, 1), 8) is None


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(4, 4, 3, padding=1, groups=2),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2),
        nn.Conv2d(4, 4, (3, 1)),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    ],
)
def test_what_does_not_fit_stays_a_convolution(conv):
    assert geometry_of(conv, (2, 2)) is None


def test_a_map_that_is_not_square_stays_a_convolution():
    assert geometry_of(nn.Conv2d(4, 4, 3, padding=1), (2, 4)) is None


@pytest.mark.parametrize(
    ("conv", "size"),
    [
        (nn.Conv2d(3, 4, 3, stride=2, padding=1), 4),
        (nn.Conv2d(3, 4, 3, padding=1), 2),
        (nn.Conv2d(4, 4, 3, padding=1, groups=4), 4),
        (crop(nn.Conv2d(3, 4, 3, padding=1), (1, 1)), 1),
    ],
    ids=["patches", "blocks", "depthwise", "cropped"],
)
def test_a_map_of_another_size_is_an_error_and_not_another_number(conv, size):
    product = as_product(conv, geometry_of(conv, (size, size)), 8)
    product(torch.randn(2, conv.in_channels, size, size))
    for shape in ((size + 2, size + 2), (1, size + 3)):
        with pytest.raises(RunError, match=rf"a product for maps of {size}x{size} met one of {shape[0]}x{shape[1]}: "):
            product(torch.randn(2, conv.in_channels, *shape))


def test_a_kernel_of_one_pixel_is_a_product_on_any_map():
    conv = nn.Conv2d(3, 4, 1, stride=2)
    product = as_product(conv, geometry_of(conv, (4, 4)), 8)
    images = torch.randn(2, 3, 5, 6)
    torch.testing.assert_close(product(images), conv(images))


def test_products_on_cropped_kernels_keep_the_plain_state(recipe):
    both = products(dead_taps(recipe, {}), {"largest": 8, "layers": "all"})
    state = plain_state(both.model)
    assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in recipe.model.state_dict().items()}
    for name, value in recipe.model.state_dict().items():
        assert state[name].equal(value)
    assert isinstance(both.model.get_submodule("layer4.1.conv1"), ProductConv2d)


def test_without_dead_taps_layers_that_have_them_stay(recipe):
    alone = products(recipe, {"largest": 8, "layers": "all"})
    assert not isinstance(alone.model.get_submodule("layer4.1.conv1"), ProductConv2d)
    assert isinstance(alone.model.get_submodule("layer3.1.conv1"), ProductConv2d)


def test_the_probe_times_this_batch_and_says_what_it_chose(recipe):
    chosen = products(replace(recipe, batch_size=8), {"largest": 8, "layers": "probe"})
    replaced = [n for n, m in chosen.model.named_modules() if isinstance(m, ProductConv2d)]
    assert all(name in chosen.notes[-1] for name in replaced)


def test_a_note_names_no_more_layers_than_one_reads():
    names = [f"layer{i}" for i in range(23)]
    assert _in_words(names[:2]) == "layer0, layer1"
    assert _in_words(names).endswith("layer18, layer19 and 3 more")


def test_bf16_products_follow_autocast():
    conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    product = as_product(conv, Geometry(2, 3, 1, 1), 8)
    images = torch.randn(16, 8, 2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = product(images), conv(images)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected.float(), rtol=2e-2, atol=2e-2)
    found.float().sum().backward()
    assert conv.weight.grad.dtype == torch.float32


def test_a_layer_that_can_not_be_a_product_is_refused(recipe):
    with pytest.raises(UsageError, match="layer1"):
        products(recipe, {"largest": 8, "layers": "layer1.0.conv1"})


def test_what_a_probe_chose_can_be_repeated(recipe):
    first = products(replace(recipe, batch_size=8), {"largest": 8, "layers": "probe"})
    again = products(recipe, {"largest": 8, **first.settled["products"]})
    assert again.settled == first.settled
    assert again.notes == first.notes


def test_a_cropped_kernel_that_needs_padding_is_left_alone():
    cropped = crop(nn.Conv2d(1, 1, 5, stride=3, padding=3), (2, 2))
    assert cropped is None or not any(cropped.border) or geometry_of(cropped, (2, 2)) is None
