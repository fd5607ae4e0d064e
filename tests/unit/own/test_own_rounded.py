"""A loss that changes weights between two passes through its net, under autocast, which keeps rounded weights."""

import pytest
from tests.own_files import TUPLE, write
from tests.unit.conftest import make_spec

from laptime.engine.build import build, make_recipe, open_data
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec

# How far the scores move when the weights do, as sharpness-aware training asks in each step.
_NUDGED = """
        scores = model(x)
        kept = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p in model.parameters():
                p.data.mul_(1.5)
        moved = model(x)
        with torch.no_grad():
            for p, before in zip(model.parameters(), kept):
                p.data.copy_(before)
        return F.mse_loss(moved, scores.detach()) + 0 * F.cross_entropy(scores, y)
"""
_LOSS = """
        scores = model(x)
        return F.cross_entropy(scores, y), (scores.argmax(1) == y).float().mean()
"""


def test_each_pass_sees_the_weights_as_they_are(file):
    name = write(file, TUPLE, ("nn.Dropout(), ", ""), (_LOSS, _NUDGED))
    data = inspect(name)
    losses = []
    for chosen in ((), (OptimizationSpec(name="bf16"),)):
        spec = make_spec(data=data, workload="nudged", optimizations=chosen)
        parts = build(make_recipe(spec, open_data(spec), chosen), mark=lambda _: None)
        losses.append(parts.forward(parts.model, next(iter(parts.loader.epoch(0)))).loss.item())
        assert not parts.model._forward_pre_hooks
    assert losses[1] == pytest.approx(losses[0], rel=0.05), "0 where the second pass has the weights of the first"
