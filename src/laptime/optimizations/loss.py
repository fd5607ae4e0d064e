"""Stage loss: what the training step minimizes."""

from __future__ import annotations

from dataclasses import replace

from laptime.optimizations.base import Options, Recipe


def label_smoothing(recipe: Recipe, options: Options) -> Recipe:
    """Spreads a share of each label over all classes, in training alone: the test loss stays what it was."""
    amount = float(options["amount"])
    forward = recipe.workload.smoothed(amount)
    if forward is None:
        note = f"labels not smoothed: the loss of {recipe.workload.name} has none to smooth"
        return replace(recipe, notes=(*recipe.notes, note))
    return replace(recipe, forward=forward, smoothing=amount)
