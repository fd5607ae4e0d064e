"""Dead taps are exact: proven in float64, where only reordering is left of the difference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.models import resnet18

from laptime.engine.plain import plain_gradients, plain_state
from laptime.optimizations.dead_taps import CroppedConv2d, conv_inputs, crop, live_axis


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@settings(max_examples=200, deadline=None)
@given(
    size=st.integers(1, 6),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    padding=st.integers(0, 4),
    dilation=st.integers(1, 2),
)
def test_cropped_convolution_equals_the_whole_one(size, kernel, stride, padding, dilation):
    if output_size(size, kernel, stride, padding, dilation) < 1:
        return
    conv = nn.Conv2d(2, 3, kernel, stride, padding, dilation).double()
    cropped = crop(conv, (size, size))
    if cropped is None:
        return
    images = torch.randn(2, 2, size, size, dtype=torch.float64, requires_grad=True)
    expected = conv(images)
    (grad_images, grad_weight) = torch.autograd.grad(expected.square().sum(), (images, conv.weight))
    found = cropped(images)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    (found_images, found_weight) = torch.autograd.grad(found.square().sum(), (images, cropped.weight))
    torch.testing.assert_close(found_images, grad_images, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(cropped.plain_gradient(found_weight), grad_weight, rtol=1e-10, atol=1e-10)


def test_live_axis_of_layer4():
    # 3x3 with padding 1 on one pixel: the centre alone; stride 2 on two pixels: the last two taps.
    assert live_axis(1, 3, 1, 1) == (axis := live_axis(1, 3, 1, 1))
    assert (axis.first, axis.last, axis.before, axis.after) == (1, 1, 0, 0)
    strided = live_axis(2, 3, 2, 1)
    assert (strided.first, strided.last, strided.before, strided.after) == (1, 2, 0, 0)
    assert live_axis(8, 3, 1, 1).first == 0


def test_resnet18_on_32_pixels_loses_seven_million_parameters():
    model = resnet18(num_classes=10)
    removed = 0
    for name, sizes in conv_inputs(model, (32, 32)).items():
        conv = model.get_submodule(name)
        cropped = crop(conv, sizes[0])
        if cropped is not None:
            assert name.startswith("layer4")
            removed += conv.weight.numel() - cropped.weight.numel()
    assert removed == 6_946_816
    assert sum(p.numel() for p in model.parameters()) == 11_181_642


def test_state_dict_and_gradients_come_back_in_the_plain_layout():
    plain = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    cropped = nn.Sequential(*plain)
    cropped[0] = crop(plain[0], (1, 1))
    assert isinstance(cropped[0], CroppedConv2d)
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


@pytest.mark.parametrize(
    "conv", [nn.Conv2d(1, 1, 3, padding="same"), nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")]
)
def test_refuses_padding_that_is_not_zeros(conv):
    from laptime.optimizations.dead_taps import refusal

    assert "padding" in refusal(conv, calls=1, shared=False)
    assert "shared" in refusal(nn.Conv2d(1, 1, 3), calls=2, shared=False)
    assert refusal(nn.Conv2d(1, 1, 3, padding=1), calls=1, shared=False) is None
