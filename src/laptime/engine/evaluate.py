"""Evaluation: without gradients, in large batches, outside the counted time."""

from __future__ import annotations

import torch

from laptime.data.tensors import Split
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.data import Normalizer
from laptime.workloads.base import Batch, Counts

EVALUATION_BATCH = 500


def evaluate(p: Parts, recipe: Recipe, split: Split) -> Counts:
    """Runs the model over this rank's part of a split in evaluation mode, in the precision it was trained in.

    Args:
        p: the run's parts; what is evaluated is the model or its average, left in training mode.
        recipe: how images become inputs.
        split: images [N, H, W, 3], uint8.

    Returns:
        Summed loss, hits and count of the part, on the device.
    """
    world = recipe.world
    images, labels = (t.tensor_split(world.size)[world.rank] for t in (split.images, split.labels))
    normalize = Normalizer(recipe)
    loss = torch.zeros((), dtype=torch.float64, device=p.device)  # ranks add up to the same
    correct = torch.zeros((), dtype=torch.int64, device=p.device)
    model = p.evaluated
    model.eval()
    with torch.inference_mode():
        for some, answers in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
            if not len(answers):
                continue  # more ranks than images: the mean loss of none is not a number
            batch = Batch(normalize(some).to(p.device), answers.to(p.device))
            counts = p.forward(model, batch).detached()
            loss += counts.loss_sum
            correct += counts.correct
    model.train()
    return Counts(loss, correct, len(labels))
