"""A net of three layers, built for real, whose step takes about a millisecond."""

import torch
from tests.unit.conftest import CLASSES, make_data
from torch import nn

from laptime.engine.build import build
from laptime.measure.marks import StepMarks
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.data import items
from laptime.optimizations.step import tutorial_step
from laptime.workloads.base import classify

SIZE, BATCH = 8, 4


class Tiny:
    """A convolution whose bias the norm behind it takes away."""

    name = "tiny"

    def make_model(self, classes: int, weights: str) -> nn.Module:
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))
        return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), *head)

    forward = staticmethod(classify)

    def smoothed(self, amount: float) -> None:
        return None


def tiny(train: int = 10) -> tuple[Parts, Recipe]:
    """Three steps an epoch, the last of two samples."""
    torch.manual_seed(3)
    recipe = Recipe(
        workload=Tiny(),
        model=Tiny().make_model(len(CLASSES), "none"),
        data=make_data(train, 4, size=SIZE),
        device=torch.device("cpu"),
        image_size=(SIZE, SIZE),
        batch_size=BATCH,
        learning_rate=1e-3,
        epochs=1,
        seed=5,
        make_loader=items,
        forward=classify,
        step=tutorial_step,
    )
    return build(recipe, StepMarks()), recipe
