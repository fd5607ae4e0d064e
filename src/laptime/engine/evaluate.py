"""Evaluation: without gradients, in large batches, outside the counted time."""

from __future__ import annotations

import torch

from laptime.data.tensors import Split
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.data import Normalizer
from laptime.workloads.base import Batch, Counts

EVALUATION_BATCH = 500


def evaluate(p: Parts, recipe: Recipe, split: Split) -> Counts:
    """Runs the model over a split in evaluation mode, in the precision it was trained in.

    Args:
        p: the run's parts; what is evaluated is the model or its average, left in training mode.
        recipe: how images become inputs.
        split: images [N, H, W, 3], uint8.

    Returns:
        Summed loss, hits and count, on the device.
    """
    normalize = Normalizer(recipe)
    loss = torch.zeros((), device=p.device)
    correct = torch.zeros((), dtype=torch.int64, device=p.device)
    model = p.evaluated
    model.eval()
    with torch.inference_mode():
        for images, labels in zip(
            split.images.split(EVALUATION_BATCH), split.labels.split(EVALUATION_BATCH), strict=True
        ):
            batch = Batch(normalize(images).to(p.device), labels.to(p.device))
            counts = p.forward(model, batch).detached()
            loss += counts.loss_sum
            correct += counts.correct
    model.train()
    return Counts(loss, correct, len(split.labels))
