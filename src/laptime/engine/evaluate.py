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
    """Runs the model over this rank's part of a split in evaluation mode, in the precision it was trained in.

    Args:
        p: the run's parts; what is evaluated is the model or its average, left in training mode.
        recipe: how images become inputs, and where the model is evaluated.
        split: images [N, H, W, C], as they are stored.

    Returns:
        Summed loss, hits and count of the part, on the device of the evaluation.
    """
    world = recipe.world
    images, labels = (t.tensor_split(world.size)[world.rank] for t in (split.images, split.labels))
    elsewhere = recipe.evaluate_on is not None and recipe.evaluate_on != p.device
    device = recipe.evaluate_on or p.device
    model = copy.deepcopy(p.evaluated).to(device) if elsewhere else p.evaluated
    size = _TUTORIAL_BATCH if elsewhere else EVALUATION_BATCH[device.type]
    normalize = Normalizer(recipe, device)
    loss = torch.zeros((), dtype=torch.float64, device=device)  # ranks add up to the same
    correct = torch.zeros((), dtype=torch.int64, device=device)
    model.eval()
    with torch.inference_mode():
        for some, answers in zip(images.split(size), labels.split(size), strict=True):
            if not len(answers):
                continue  # more ranks than images: the mean loss of none is not a number
            counts = p.forward(model, Batch(normalize(some.to(device)), answers.to(device))).detached()
            loss += counts.loss_sum
            correct += counts.correct
    model.train()
    return Counts(loss, correct, len(labels))
