"""Evaluation: without gradients, in large batches, outside the counted time."""

from __future__ import annotations

import copy

import torch

from laptime.data.tensors import Split
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.data import Normalizer
from laptime.workloads.base import Batch, Counts

# By device; a GPU of which a small batch uses a fraction takes larger ones.
EVALUATION_BATCH = {"cpu": 500, "cuda": 2000}
_TUTORIAL_BATCH = 32


def evaluate(p: Parts, recipe: Recipe, split: Split) -> Counts:
    """Runs the model over a split in evaluation mode, in the precision it was trained in.

    Args:
        p: the run's parts; the model is left in training mode.
        recipe: how images become inputs, and where the model is evaluated.
        split: images [N, H, W, 3], uint8.

    Returns:
        Summed loss, hits and count, on the device of the evaluation.
    """
    elsewhere = recipe.evaluate_on is not None and recipe.evaluate_on != p.device
    device = recipe.evaluate_on or p.device
    model = copy.deepcopy(p.model).to(device) if elsewhere else p.model
    size = _TUTORIAL_BATCH if elsewhere else EVALUATION_BATCH[device.type]
    normalize = Normalizer(recipe, device)
    loss = torch.zeros((), device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    model.eval()
    with torch.inference_mode():
        for images, labels in zip(split.images.split(size), split.labels.split(size), strict=True):
            counts = p.forward(model, Batch(normalize(images.to(device)), labels.to(device))).detached()
            loss += counts.loss_sum
            correct += counts.correct
    p.model.train()
    return Counts(loss, correct, len(split.labels))
