"""Whose step stays what it is on images in channels_last: what else has the layout in it goes without, not wrong."""

import re

import pytest
from tests.own_files import TUPLE, write

from laptime.preflight.inspecting import inspect

NET = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
BY_MEMORY = "x.as_strided(x.shape, (192, 64, 8, 1))"
# As in torch's tutorials.
VIEWED = """
class Net(nn.Sequential):
    def forward(self, x):
        return self[1](F.relu(self[0](x)).view(-1, 256))


class Workload:
"""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((), None),
        ((("scores = model(x)", "scores = model(x + torch.randn(x.shape))"),), None),
        # Which pixel gets which is as random in either order of memory, as of a dropout's mask.
        ((("scores = model(x)", "scores = model(x + torch.randn_like(x))"),), None),
        ((("scores = model(x)", "scores = model(x + torch.empty_like(x).uniform_())"),), None),
        ((("scores = model(x)", f"scores = model({BY_MEMORY})"),), r"order of memory \(as_strided\)"),
        # It differs from itself, so the layout is not what is to blame.
        ((("scores = model(x)", "scores = model(x + torch.Generator().seed() % 1000 / 1000)"),), None),
        (
            (
                ("\nclass Workload:\n", VIEWED),
                (NET, "Net(nn.Conv2d(3, 4, 3, padding=1), nn.Linear(256, 2))"),
            ),
            r"does not take images in channels_last: RuntimeError: view size .* line 11: return self",
        ),
    ],
)
def test_a_step_that_is_another_one_in_channels_last_is_left_out_of_it(file, changes, reason):
    refused = inspect(write(file, TUPLE, *changes)).own.refused
    assert "products" not in refused
    if reason is None:
        assert "channels-last" not in refused
    else:
        assert re.search(reason, refused["channels-last"])
