"""A detector's layers computed in other ways: frozen norms in the weights, regions as sums of rows."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torchvision.models import resnet18
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign

from laptime.optimizations.folding import FoldedConv, folded_norms
from laptime.optimizations.pooling import GatheredRoIAlign, gathered_rois


def test_folded_norms_are_exact_in_float64(recipe):
    torch.manual_seed(0)
    plain = resnet18(norm_layer=FrozenBatchNorm2d).double()
    for module in plain.modules():
        if isinstance(module, FrozenBatchNorm2d):
            for values, low in (
                (module.weight, 0.5),
                (module.running_var, 0.5),
                (module.bias, -1),
                (module.running_mean, -1),
            ):
                values.uniform_(low, 1.5)
    plain.conv1.weight.requires_grad_(False)
    folded = folded_norms(replace(recipe, model=plain), {})
    assert sum(isinstance(m, FoldedConv) for m in folded.model.modules()) == 20
    assert "20 frozen norms folded, 19 of them" in folded.notes[0]
    images = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    for model in (plain, folded.model):
        model(images).square().sum().backward()
    assert folded.model.state_dict().keys() == plain.state_dict().keys()
    for (name, one), (other_name, other) in zip(plain.named_parameters(), folded.model.named_parameters(), strict=True):
        assert name == other_name
        if one.grad is None:
            assert other.grad is None
        else:
            assert torch.allclose(one.grad, other.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_gathered_rois_are_torchvisions_in_float64(levels, samples):
    torch.manual_seed(0)
    names = ["0", "1", "2"][:levels]
    sides = [(24, 32), (12, 16), (6, 8)]
    plain = MultiScaleRoIAlign(names, (3, 5), samples, canonical_scale=40, canonical_level=3)
    gathered = GatheredRoIAlign(plain)
    # Of all sizes, across every edge and outside, without area, on the last pixel.
    corners = torch.rand(2, 60, 2, dtype=torch.float64) * torch.tensor([320.0, 256.0]) - 30
    boxes = torch.cat([corners.amin(0), corners.amax(0)], dim=1)
    odd = [[-9, -9, -8.5, -8.5], [0, 0, 256, 192], [255, 191, 256, 192], [10, 10, 10, 10], [300, 250, 310, 260]]
    given = [boxes[:40], torch.cat([boxes[40:], torch.tensor(odd, dtype=torch.float64)])]
    found = []
    for pool in (plain, gathered):
        torch.manual_seed(1)
        maps = {n: torch.randn(2, 6, *side, dtype=torch.float64) for n, side in zip("012", sides, strict=True)}
        kept = {n: m.requires_grad_() for n, m in maps.items()}
        out = pool(kept, given, [(192, 256), (180, 256)])
        out.backward(torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
        found.append((out, [kept[n].grad for n in names]))
    (one, ones), (other, others) = found
    assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(ones, others, strict=True))


def test_gathered_rois_keep_the_dtype_and_bear_none(recipe):
    model = nn.Module()
    model.pool = MultiScaleRoIAlign(["0"], 2, 2)
    changed = gathered_rois(replace(recipe, model=model), {})
    assert "1 RoIAlign over sums" in changed.notes[-1]
    maps = {"0": torch.randn(1, 4, 8, 8, dtype=torch.bfloat16)}
    assert changed.model.pool(maps, [torch.rand(3, 4) * 8], [(32, 32)]).dtype is torch.bfloat16
    lost = changed.model.pool({"0": maps["0"].float()}, [torch.full((2, 4), torch.nan)], [(32, 32)])
    assert lost.shape == (2, 4, 2, 2)
    none = changed.model.pool({"0": maps["0"].float()}, [torch.empty(0, 4)], [(32, 32)])
    assert none.shape == (0, 4, 2, 2)
