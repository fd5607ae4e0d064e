"""What a look into a training finds in its losses and in samples with gaps."""

import pytest
from tests.own_files import TUPLE, write

from laptime.preflight.inspecting import inspect


def test_samples_with_missing_values_are_kept_all_the_same(file):
    gaps = ("Y = ", "X[X > 2] = float('nan')\nY = ")
    name = write(file, TUPLE, gaps, ("model(x)", "model(x.nan_to_num())"))
    assert "resident" not in inspect(name).own.refused


@pytest.mark.parametrize(
    ("loss", "summed"),
    [
        ("F.cross_entropy(scores, y, reduction='sum')", True),
        ("0.1 * F.cross_entropy(scores, y, reduction='none').sum()", True),
        ("F.cross_entropy(scores, y)", False),
        ("F.cross_entropy(scores @ scores.T, torch.arange(len(y)))", False),
        ("F.cross_entropy(scores, y) * min(len(y), 8)", False),
        ("F.cross_entropy(scores, y) * (len(y) == 8) + scores.mean()", False),
    ],
)
def test_a_loss_that_is_a_sum_is_not_for_other_sizes_of_batches(file, loss, summed):
    refused = inspect(write(file, TUPLE, ("F.cross_entropy(scores, y)", loss))).own.refused
    assert [name for name in ("large-batch", "ddp", "flat-reduce") if "is a sum" in refused.get(name, "")] == (
        ["large-batch", "ddp", "flat-reduce"] if summed else []
    )
