"""Augmentations that few items get: no pair of readings shows them, and kept samples would never have them again."""

import pytest
from tests.own_files import TUPLE, write

from laptime.preflight.inspecting import inspect

_SET = """
import random
import numpy as np

OWN = random.Random(0)


class Rare(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        DRAW
        return (-self.images[index] if mirrored else self.images[index]), self.labels[index]
"""
_SPLIT = ("TensorDataset(X[:64], Y[:64])", "Rare(X[:64], Y[:64])")
_SEEDED = "torch.manual_seed(index); mirrored = torch.rand(1) < 0.5"


@pytest.mark.parametrize(
    "draw",
    [
        "mirrored = torch.rand(1) < 1e-6",
        "mirrored = random.random() < 1e-6",
        "mirrored = np.random.rand() < 1e-6",
        "mirrored = OWN.random() < 0.03",
    ],
)
def test_samples_that_are_seldom_others_are_not_kept(file, draw):
    refused = inspect(write(file, TUPLE + _SET.replace("DRAW", draw), _SPLIT)).own.refused
    assert "(a random augmentation, perhaps)" in refused["resident"] or "rare augmentation" in refused["resident"]


@pytest.mark.parametrize("draw", [_SEEDED, "mirrored = False"])
def test_samples_that_draw_the_same_each_time_are_kept_where_no_step_draws_behind_them(file, draw):
    plain = TUPLE.replace("nn.Dropout(), ", "")
    assert "resident" not in inspect(write(file, plain + _SET.replace("DRAW", draw), _SPLIT)).own.refused
