"""Norms that are written out, in traces that torch records; and what is like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.trace.recorded_steps import recorded_steps
from torch import nn
from torch.nn.functional import batch_norm, group_norm, instance_norm, layer_norm, relu, rms_norm
from torchvision.models import resnet18

from laptime.advice import signals_of
from laptime.advice.outcome import Outcome, Proposal
from laptime.advice.rules.norms import written_norms

# So many that one that the machine holds up moves no median.
_STEPS, _EPS, _SIDE = 7, 1e-5, 32
_LAST, _SAMPLE, _SECOND, _BATCH, _PLANE = (-1,), (1, 2, 3), (1,), (0, 2, 3), (2, 3)
_PLACES = (0, 1, 2)
_OF_PLACES = "F.batch_norm(x.flatten(0, -2), running_mean, running_var, weight, bias, training=True).view_as(x)"

Norm = Callable[[torch.Tensor], torch.Tensor]


def by_mean(axes: tuple[int, ...]) -> Norm:
    def norm(x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(axes, keepdim=True)
        return (x - mean) / torch.sqrt((x - mean).pow(2).mean(axes, keepdim=True) + _EPS)

    return norm


def by_var(axes: tuple[int, ...]) -> Norm:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(axes, keepdim=True)) * torch.rsqrt(x.var(axes, keepdim=True, unbiased=False) + _EPS)

    return norm


def by_std(axes: tuple[int, ...]) -> Norm:
    return lambda x: (x - x.mean(axes, keepdim=True)) / (x.std(axes, keepdim=True) + _EPS)


def by_both(axes: tuple[int, ...]) -> Norm:
    def norm(x: torch.Tensor) -> torch.Tensor:
        var, mean = torch.var_mean(x, axes, keepdim=True, correction=0)
        return (x - mean) / (var + _EPS) ** 0.5

    return norm


def by_square(axes: tuple[int, ...]) -> Norm:
    def norm(x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(axes, keepdim=True)
        return x * torch.rsqrt((x * x).mean(axes, keepdim=True) + _EPS)

    return norm


def flat(x: torch.Tensor) -> torch.Tensor:
    """A BatchNorm whose statistics lost their axes."""
    mean, var = x.mean(_BATCH), x.var(_BATCH, unbiased=False)
    return (x - mean[None, :, None, None]) / torch.sqrt(var + _EPS)[None, :, None, None]


def in_groups(x: torch.Tensor) -> torch.Tensor:
    return by_var(_LAST)(x.view(len(x), 4, -1)).view(x.shape)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + _EPS)


def of_length_one(x: torch.Tensor) -> torch.Tensor:
    return x / x.pow(2).sum(-1, keepdim=True).sqrt()


def squeezed(x: torch.Tensor) -> torch.Tensor:
    """Channels by a gate, as squeeze and excitation has it."""
    return x * x.mean(_PLANE, keepdim=True).sigmoid()


def centred(x: torch.Tensor) -> torch.Tensor:
    """Less the mean, by a mask."""
    return (x - x.mean(-1, keepdim=True)) * (torch.rand(*x.shape[:-1], 1) > 0.5)


def standardized(x: torch.Tensor) -> torch.Tensor:
    """By numbers of the data set."""
    return (x - torch.full((1, x.shape[1], 1, 1), 0.4)) / torch.full((1, x.shape[1], 1, 1), 0.2) * x.mean()


def forgotten(x: torch.Tensor) -> torch.Tensor:
    """What a net is given, normalized, as forecasts have it."""
    return by_var(_LAST)(x.detach()) + x


def soft(x: torch.Tensor) -> torch.Tensor:
    x = (x - x.amax(-1, keepdim=True)).exp()
    return x / x.sum(-1, keepdim=True)


def decorrelated(x: torch.Tensor) -> torch.Tensor:
    """A variance that is bounded, as VICReg has it."""
    x = x - x.mean(0)
    return x + relu(1 - torch.sqrt(x.var(0) + _EPS)).mean()


def own_layer(x: torch.Tensor) -> torch.Tensor:
    return layer_norm(x, x.shape[-1:])


def own_batch(x: torch.Tensor) -> torch.Tensor:
    return batch_norm(x, None, None, training=True)


def own_places(x: torch.Tensor) -> torch.Tensor:
    return own_batch(x.flatten(0, -2)).view_as(x)


def own_instance(x: torch.Tensor) -> torch.Tensor:
    return instance_norm(x)


def own_group(x: torch.Tensor) -> torch.Tensor:
    return group_norm(x, 4)


def own_rms(x: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, x.shape[-1:])


def told(step: Callable[[], torch.Tensor], to: Path, **options: bool) -> Outcome:
    trace = recorded_steps(lambda: step().backward(), to, _STEPS, record_shapes=True, **options)
    return written_norms(signals_of(trace=trace))


def of_maps(norm: Norm) -> Callable[[], torch.Tensor]:
    """By channel, since a convolution would take most of such a step."""
    weight, x = nn.Parameter(torch.rand(8, 1, 1)), torch.randn(8, 8, _SIDE, _SIDE)
    return lambda: norm(x * weight).square().mean()


def projected(norm: Norm) -> Callable[[], torch.Tensor]:
    layer, x = nn.Linear(8, 64), torch.randn(32, 64, 8)
    return lambda: (norm(layer(x)) * torch.arange(64)).square().mean()


@pytest.mark.parametrize("norm", [by_mean, by_var, by_std, by_both, by_square], ids=lambda f: f.__name__)
def test_each_spelling_of_a_layer_norm_is_told(norm: Callable[[tuple[int, ...]], Norm], tmp_path: Path) -> None:
    found = told(projected(norm(_LAST)), tmp_path / "t.json")
    assert isinstance(found, Proposal)
    assert found.code == "F.layer_norm(x, x.shape[2:], weight, bias)"
    assert found.klass == ("exact" if norm in (by_mean, by_square) else "model")
    assert any("unbiased" in text or "n - 1" in text for text in found.evidence) == (found.klass == "model")


@pytest.mark.parametrize(
    ("norm", "code"),
    [
        (by_mean(_SECOND), "F.layer_norm(x.movedim(1, -1), x.shape[1:2], weight, bias).movedim(-1, 1)"),
        (by_mean(_PLANE), "F.layer_norm(x, x.shape[2:], weight, bias)"),
        (by_var(_SAMPLE), "F.layer_norm(x, x.shape[1:], weight, bias)"),
        (by_mean(_BATCH), "F.batch_norm(x, running_mean, running_var, weight, bias, training=True)"),
        (flat, "F.batch_norm(x, running_mean, running_var, weight, bias, training=True)"),
        (by_mean(_PLACES), _OF_PLACES),
        (lambda x: by_var((0, 1))(x.flatten(1, 2)), _OF_PLACES),
        (lambda x: by_var((0, 1))(x.flatten(0, 2)[:, None]), _OF_PLACES),
        (in_groups, "F.layer_norm(x, x.shape[2:], weight, bias)"),
        (lambda x: by_mean(_LAST)(x.flatten(1)), "F.layer_norm(x, x.shape[1:], weight, bias)"),
    ],
    ids=["channels", "planes", "samples", "batch", "flat", "places", "words", "one word", "groups", "two axes"],
)
def test_the_axes_tell_which_operator_does_it(norm: Norm, code: str, tmp_path: Path) -> None:
    found = told(of_maps(norm), tmp_path / "t.json")
    assert isinstance(found, Proposal)
    assert found.code == code


def test_what_is_told_computes_the_same() -> None:
    x = torch.randn(4, 6, 5, 5, dtype=torch.float64, requires_grad=True)
    scope = {"F": nn.functional, "x": x, "weight": None, "bias": None, "running_mean": None, "running_var": None}
    for norm, code in [
        (by_mean(_SECOND), "F.layer_norm(x.movedim(1, -1), x.shape[1:2], weight, bias).movedim(-1, 1)"),
        (by_mean(_PLANE), "F.layer_norm(x, x.shape[2:], weight, bias)"),
        (by_mean(_BATCH), "F.batch_norm(x, running_mean, running_var, weight, bias, training=True)"),
        (by_mean(_PLACES), _OF_PLACES),
    ]:
        mine = eval(code, scope)  # our own text
        torch.testing.assert_close(mine, norm(x))
        grads = [torch.autograd.grad(y.pow(3).sum(), x)[0] for y in (mine, norm(x))]
        torch.testing.assert_close(*grads)


def test_its_line_is_told(tmp_path: Path) -> None:
    found = told(projected(by_mean(_LAST)), tmp_path / "t.json", with_stack=True)
    assert isinstance(found, Proposal)
    assert any(line.startswith(f"{Path(__file__).name}:") or __file__ in line for line in found.lines)


@pytest.mark.parametrize(
    "norm",
    [rms, of_length_one, centred, soft, forgotten, decorrelated, own_layer, own_places, own_rms],
    ids=lambda f: f.__name__,
)
def test_what_is_like_a_layer_norm_is_not(norm: Norm, tmp_path: Path) -> None:
    assert told(projected(norm), tmp_path / "t.json") is None


@pytest.mark.parametrize("norm", [squeezed, standardized, own_batch, own_instance, own_group], ids=lambda f: f.__name__)
def test_what_is_like_a_norm_of_maps_is_not(norm: Norm, tmp_path: Path) -> None:
    assert told(of_maps(norm), tmp_path / "t.json") is None


def test_nets_of_torchs_own_norms_are_not(tmp_path: Path) -> None:
    residual, encoder = resnet18(num_classes=4), nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    images, words = torch.randn(4, 3, 64, 64), torch.randn(8, 16, 32)
    for n, step in enumerate((lambda: residual(images).square().mean(), lambda: encoder(words).square().mean())):
        assert told(step, tmp_path / f"{n}.json") is None
