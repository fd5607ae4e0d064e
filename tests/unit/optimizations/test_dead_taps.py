"""Dead taps are exact: proven in float64, where only reordering is left of the difference."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.models import resnet18

from laptime.engine.plain import plain_gradients, plain_state
from laptime.errors import RunError
from laptime.optimizations.dead_taps import conv_sizes, crop, dead_parameters, dead_taps
from laptime.optimizations.live_taps import LiveConv2d, Taps, axes_of, live_axes, live_axis
from laptime.optimizations.shapes import runs_of

KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def each(first, last):
    """A number for each of up to three axes."""
    return st.tuples(*[st.integers(first, last)] * 3)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(max_examples=200)
@given(
    axes=st.sampled_from([1, 2, 2, 3]),
    size=each(1, 6),
    kernel=each(1, 5),
    stride=each(1, 3),
    padding=st.one_of(st.sampled_from(["same", "valid"]), each(0, 4)),
    dilation=each(1, 5),
    groups=st.sampled_from([1, 2]),
)
def test_cropped_convolution_equals_the_whole_one(axes, size, kernel, stride, padding, dilation, groups):
    if padding == "same":
        stride = (1, 1, 1)
    elif padding != "valid":
        padding = padding[:axes]
    size = size[:axes]
    conv = KINDS[axes](2, 4, kernel[:axes], stride[:axes], padding, dilation[:axes], groups).double()
    for length, taps in zip(size, axes_of(conv), strict=True):
        if length + taps.before + taps.after < taps.dilation * (taps.kernel - 1) + 1:
            return
    cropped = crop(conv, size)
    if cropped is None:
        return
    images = torch.randn(2, 2, *size, dtype=torch.float64, requires_grad=True)
    expected = conv(images)
    (grad_images, grad_weight) = torch.autograd.grad(expected.square().sum(), (images, conv.weight))
    found = cropped(images)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    (found_images, found_weight) = torch.autograd.grad(found.square().sum(), (images, cropped.weight))
    torch.testing.assert_close(found_images, grad_images, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(cropped.crop.filled(found_weight, 0.0), grad_weight, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_each_axis_that_is_cropped_gives_as_many_outputs_of_the_same_pixels():
    """All axes to a kernel of 8 and a dilation of 5, counted; those that were wrong once are convolved, too."""
    cropped, shortened = 0, set()
    for kernel, dilation, size in product(range(1, 9), range(1, 6), range(1, 13)):
        same = dilation * (kernel - 1)
        paddings = [(1, same // 2, same - same // 2), *product((1, 2, 3), range(8))]
        for stride, before, *after in paddings:
            taps = Taps(kernel, stride, before, after[0] if after else before, dilation)
            axis = live_axis(size, taps)
            if axis is None or axis.kernel == kernel or outputs(size, taps) < 1:
                continue
            cropped += 1
            part = Taps(axis.kernel, stride, axis.before, axis.after, dilation)
            assert outputs(size, part) == outputs(size, taps), (size, taps)
            assert axis.before == before - axis.first * dilation
            if axis.after < 0:
                shortened.add((kernel, dilation, size))
    assert cropped > 1_000
    assert {dilation for _, dilation, _ in shortened} == {3, 5}
    for kernel, dilation, size in shortened:
        conv = nn.Conv2d(2, 2, (kernel, 1), padding="same", dilation=dilation).double()
        images = torch.randn(2, 2, size, 3, dtype=torch.float64)
        torch.testing.assert_close(crop(conv, (size, 3))(images), conv(images), rtol=0, atol=1e-12)


def outputs(size: int, taps: Taps) -> int:
    return (size + taps.before + taps.after - taps.dilation * (taps.kernel - 1) - 1) // taps.stride + 1


def test_same_padding_with_an_even_kernel_pads_behind():
    conv = nn.Conv2d(1, 1, (4, 3), padding="same", bias=False)
    assert axes_of(conv) == (Taps(4, 1, 1, 2), Taps(3, 1, 1, 1))
    assert crop(conv, (1, 1)).kernel_size == (1, 1)


def test_live_axis_of_layer4():
    # 3x3 with padding 1 on one pixel: the centre alone; stride 2 on two pixels: the last two taps.
    axis = live_axis(1, Taps(3, 1, 1, 1))
    assert (axis.first, axis.last, axis.before, axis.after) == (1, 1, 0, 0)
    strided = live_axis(2, Taps(3, 2, 1, 1))
    assert (strided.first, strided.last, strided.before, strided.after) == (1, 2, 0, 0)
    assert live_axis(8, Taps(3, 1, 1, 1)).first == 0


def test_resnet18_on_32_pixels_loses_seven_million_parameters(recipe):
    model = resnet18(num_classes=10)
    removed = 0
    for name, sizes in conv_sizes(model, runs_of(replace(recipe, model=model))).items():
        conv = model.get_submodule(name)
        cropped = crop(conv, sizes[0])
        if cropped is not None:
            assert name.startswith("layer4")
            removed += conv.weight.numel() - cropped.weight.numel()
    assert removed == 6_946_816
    whole = replace(recipe, model=model)
    assert dead_parameters(whole) == removed
    assert dead_parameters(dead_taps(whole, {})) == 0
    assert sum(p.numel() for p in model.parameters()) == 11_181_642


def test_a_map_on_which_other_taps_live_is_an_error_and_not_another_number():
    whole = nn.Conv2d(3, 4, 3, padding=1)
    cropped = crop(whole, (1, 3))
    longer = torch.randn(2, 3, 1, 5)  # where the same taps live
    torch.testing.assert_close(cropped(longer), whole(longer))
    with pytest.raises(RunError, match=r"cropped for maps of 1x3 met one of 2x3, .*: leave dead-taps out, or give"):
        cropped(torch.randn(2, 3, 2, 3))
    with pytest.raises(ValueError, match="met one of 1x1"):
        LiveConv2d(whole, live_axes(whole, (1, 3)), [(1, 3)])(torch.randn(2, 3, 1, 1))


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_look_at_the_map_does_not_break_a_compiled_net(dynamic):
    torch._dynamo.reset()
    whole = nn.Conv2d(3, 4, 3, padding=1)
    compiled = torch.compile(crop(whole, (1, 1)), backend="eager", fullgraph=True, dynamic=dynamic)
    for count in (2, 3):
        images = torch.randn(count, 3, 1, 1)
        torch.testing.assert_close(compiled(images), whole(images))
    torch._dynamo.reset()


def test_state_dict_and_gradients_come_back_in_the_plain_layout():
    plain = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    cropped = nn.Sequential(*plain)
    cropped[0] = crop(plain[0], (1, 1))
    assert isinstance(cropped[0], LiveConv2d)
    optimizer = torch.optim.Adam(cropped.parameters())
    before = plain[0].weight.detach().clone()
    cropped(torch.randn(5, 3, 1, 1)).sum().backward()
    assert plain_gradients(cropped)["0.weight"].shape == before.shape
    optimizer.step()
    state = plain_state(cropped)
    assert state.keys() == plain.state_dict().keys()
    changed = state["0.weight"] != before
    assert changed[:, :, 1, 1].all()
    assert not changed[:, :, 0].any()
    plain.load_state_dict(state)
    images = torch.randn(2, 3, 1, 1)
    torch.testing.assert_close(plain(images), cropped(images))
