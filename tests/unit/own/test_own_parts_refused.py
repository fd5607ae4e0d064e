"""Micro batches of a user's own training: what they leave out, what is told of them, and mistakes in them."""

import pytest
import torch
from tests.own_files import DICTIONARY, PIECES, TUPLE, write
from tests.unit.own.test_own_parts import NORM, in_parts

from laptime.errors import RunError, UsageError
from laptime.optimizations.passes import divide
from laptime.preflight.inspecting import inspect
from laptime.workloads.base import Batch

EXCHANGING = {"ddp", "flat-reduce"}
ABOUT_PARTS = {"whole-batch", "lightning", *EXCHANGING}
_LOSS = "return F.cross_entropy(scores, y), "
_MODEL = "    def model(self):\n"
FROZEN = (
    "        return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Batch",
    "        return Frozen(nn.Conv2d(3, 4, 3, padding=1), nn.Batch",
)
HOOKED = (
    "        return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))",
    "        net = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))\n"
    "        net[1].weight.register_hook(lambda g: g.clamp(-1, 1))\n        return net",
)
_FROZEN = """

class Frozen(nn.Sequential):
    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self
"""


@pytest.mark.parametrize(
    ("changes", "refused", "reason"),
    [
        ((), {"whole-batch"}, "each batch goes through the net at once already"),
        ((in_parts(8),), {"lightning"}, "Lightning's Trainer has all micro batches of a step count alike"),
        ((in_parts(16),), {"lightning", "whole-batch"}, "each batch goes through the net at once already"),
        ((in_parts(99),), {"lightning", "whole-batch"}, "each batch goes through the net at once already"),
        (
            (NORM, in_parts(8)),
            ABOUT_PARTS,
            "its BatchNorm normalizes by micro batches, and by other samples in a whole",
        ),
        ((NORM, FROZEN, in_parts(8)), {"lightning"}, ""),
        ((HOOKED, in_parts(8)), {"lightning", "whole-batch", "ddp"}, "its weights have hooks for their gradient"),
    ],
)
def test_what_goes_beside_them(file, changes, refused, reason):
    found = inspect(write(file, PIECES + _FROZEN, *changes))
    assert ABOUT_PARTS & found.own.refused.keys() == refused
    assert reason in (found.own.refused.get("whole-batch") or found.own.refused["lightning"])
    assert "micro batches" not in found.notice


LINE = 1 + DICTIONARY[: DICTIONARY.index("    def loss")].count("\n") + 1  # behind that of the micro batches
# The mean over what is labelled, over the highest of a batch, and over pairs within it.
UNEVEN = (
    (
        "        return model(**batch).loss",
        "        return F.cross_entropy(model(**batch).logits, batch['labels'], weight=torch.tensor([0.1, 1.0]))",
    ),
    (
        "        return model(**batch).loss",
        "        return F.cross_entropy(model(**batch).logits, batch['labels'], reduction='none').max()",
    ),
    (
        "        return model(**batch).loss",
        "        return (torch.cdist(*2 * [model(**batch).logits]) - 1).square().mean()",
    ),
)


@pytest.mark.parametrize("change", UNEVEN)
def test_a_loss_that_is_no_mean_of_its_parts_is_told(file, change):
    plain = ("nn.BatchNorm1d(8), ", "")
    found = inspect(write(file, DICTIONARY, plain, change, in_parts(8)))
    assert f"{file.name}, line {LINE}: def loss(self, model, batch)) gives another loss" in found.notice
    assert {found.own.refused[name] for name in ("whole-batch", *EXCHANGING)} == {
        "its loss of a batch is not the mean of its micro batches'"
    }


def test_a_loss_that_draws_shows_nothing(file):
    drawn = ("        return model(**batch).loss", "        return model(**batch).loss * torch.rand(())")
    found = inspect(write(file, DICTIONARY, ("nn.BatchNorm1d(8), ", ""), drawn, in_parts(8)))
    assert "micro batches" not in found.notice
    assert "whole-batch" not in found.own.refused


LABELS = "    def data(self):\n"
COLLATE = (
    "    def collate_fn(self, items):\n        x, y = torch.utils.data.default_collate(items)\n        return {}\n\n"
)


def test_a_later_batch_that_can_t_be_divided_ends_the_run():
    batch = Batch({"x": torch.ones(4, 3), "pairs": torch.ones(5, 2)})
    assert divide(batch, 4) == [batch]
    with pytest.raises(RunError, match=r"a batch of 4 samples can't be divided .* a tensor of shape \(5, 2\), which"):
        divide(batch, 3)


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        *(
            (TUPLE, [in_parts(most)], f"micro_batch_size of .* is {most}: give a number above 0, a whole one")
            for most in ("0", "-4", "4.5", "True", "'8'")
        ),
        (
            TUPLE,
            [in_parts(8), (_LOSS, "return F.cross_entropy(scores, y, reduction='sum'), ")],
            r"loss\(\) of .*line \d+.* gives a sum over the samples of a batch, .*: divide it by their number",
        ),
        (
            TUPLE,
            [
                in_parts(8),
                (LABELS, COLLATE.format("x, y, torch.ones(2)") + LABELS),
                ("x, y = batch", "x, y, _ = batch"),
            ],
            r"a batch of 8 samples of .* holds a tensor of shape \(2,\) \(.*line \d+.*\), which is not one for each",
        ),
        (
            TUPLE,
            [
                in_parts(8),
                (LABELS, COLLATE.format("x, y, ['of', 'all']") + LABELS),
                ("x, y = batch", "x, y, _ = batch"),
            ],
            r"holds a str.* let each tensor be \[B, ...\], or leave micro_batch_size out",
        ),
    ],
)
def test_a_mistake_is_told(file, text, changes, said):
    with pytest.raises(UsageError, match=said):
        inspect(write(file, text, *changes))
