"""Losses that tell the samples of a batch from each other, of which ranks would see parts."""

import pytest
from tests.own_files import TUPLE, write

from laptime.preflight.inspecting import inspect

LOSS = "return F.cross_entropy(scores, y), "
# Each sample's scores beside those of all others, as SimCLR's views.
PAIRED = "return F.cross_entropy(scores @ scores.T, torch.arange(len(x))), "
DRAWN = "return F.cross_entropy(scores, y) * (1 + torch.Generator().seed() % 1000), "


@pytest.mark.parametrize(
    ("loss", "between"),
    [
        (LOSS, False),
        (PAIRED, True),
        ("return F.cross_entropy(scores, y, weight=torch.tensor([1.0, 2.0])), ", False),
        ("return F.cross_entropy(scores, y, reduction='sum'), ", False),
        (DRAWN, False),
        (PAIRED.replace(", torch", " * [1][len(x) // 9], torch"), True),  # of a batch twice over it gives none
        ("return F.cross_entropy(scores, y) / (len(x) // 8), ", False),  # of a half it gives none
        ("return F.cross_entropy(scores, y) * (1.0 if len(x) > 7 else torch.nan), ", False),
    ],
)
def test_ranks_are_left_out_where_samples_are_compared_with_each_other(file, loss, between):
    refused = inspect(write(file, TUPLE, (LOSS, loss))).own.refused
    told = {name for name, reason in refused.items() if "with each other, and ranks see a part" in reason}
    assert told == ({"ddp", "flat-reduce"} if between else set())
    assert "large-batch" not in refused or "sum" in refused["large-batch"]


# As many samples of a class, or labelled ones, in both halves of the first eight.
_ALTERNATING = ("TensorDataset(X[:64], Y[:64])", "TensorDataset(X[:64], torch.arange(64) % 2)")
_LABELLED = "keep = (y == 1).float(); each = F.cross_entropy(scores, y, reduction='none')\n"
_NO_MEANS = (
    "return F.cross_entropy(scores, y, weight=torch.tensor([1.0, 8.0])), ",
    f"{_LABELLED}        return (each * keep).sum() / keep.sum().clamp(min=1), ",
)


@pytest.mark.parametrize(
    ("loss", "uneven"),
    [
        *((loss, True) for loss in _NO_MEANS),
        (LOSS, False),
        (f"{_LABELLED}        return (each * keep).mean(), ", False),
        (_NO_MEANS[0].replace("(scores,", "(scores + torch.rand(()),"), False),  # which draws: nothing shows
    ],
)
def test_ranks_are_left_out_where_a_loss_is_no_mean_over_its_samples(file, loss, uneven):
    refused = inspect(write(file, TUPLE, _ALTERNATING, (LOSS, loss))).own.refused
    told = {name for name, reason in refused.items() if "not the mean of its parts'" in reason}
    assert told == ({"ddp", "flat-reduce"} if uneven else set())


@pytest.mark.parametrize(("layer", "observes"), [("torch.ao.quantization.FakeQuantize()", True), ("nn.ReLU()", False)])
def test_ranks_are_left_out_where_a_net_observes_ranges_to_quantize_by(file, layer, observes):
    refused = inspect(write(file, TUPLE, ("nn.Flatten(), ", f"nn.Flatten(), {layer}, "))).own.refused
    told = {name for name, reason in refused.items() if "observes ranges to quantize by" in reason}
    assert told == ({"ddp", "flat-reduce"} if observes else set())
