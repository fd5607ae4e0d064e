"""Evaluation: without gradients, in large batches, outside the counted time."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from laptime.data.boxes.tensors import BoxData, rows
from laptime.data.own.opened import OwnData, OwnSplit
from laptime.data.tensors import Split
from laptime.engine.scores import Scorer
from laptime.errors import RunError
from laptime.optimizations.base import Parts, Recipe
from laptime.optimizations.precision import AUTOCAST
from laptime.optimizations.samples import in_order, ungraded
from laptime.own.user_code import place_in
from laptime.values.copies import copy_of
from laptime.values.judging import as_judged
from laptime.workloads.base import Counts
from laptime.workloads.own import Batches, evaluated, has_evaluation
from laptime.world import ALONE, World

# By device; a GPU of which a small batch uses a fraction takes larger ones.
EVALUATION_BATCH = {"cpu": 500, "cuda": 2000}
_TUTORIAL_BATCH = 32
# How far a mean of shares may lie outside of 0 to 1.
_ROUNDED = 1e-3


def evaluate(p: Parts, recipe: Recipe, split: Split | OwnSplit) -> Counts:
    """Runs the model over this rank's part of a split in evaluation mode, in the precision it was trained in.

    An optimizer that trains other weights than it judges puts those to be judged into the model meanwhile.

    Args:
        p: the run's parts; what is evaluated is the model or its average, left in training mode.
        recipe: how images become inputs, and where the model is evaluated.
        split: of the recipe's data.

    Returns:
        Summed loss, hits (None without any) and count of the part, on the evaluation's device; the scores of a
        detector, and what an evaluation of the user's own gives.
    """
    with as_judged(p.optimizer):
        return _evaluate(p, recipe, split)


def _evaluate(p: Parts, recipe: Recipe, split: Split | OwnSplit) -> Counts:
    elsewhere = recipe.evaluate_on is not None and recipe.evaluate_on != p.device
    device = recipe.evaluate_on or p.device
    model = copy_of(p.evaluated).to(device) if elsewhere else p.evaluated
    size = _TUTORIAL_BATCH if elsewhere else EVALUATION_BATCH[device.type]
    if isinstance(recipe.data, OwnData):
        size = recipe.data.evaluation_batch  # of nets and samples of which nothing is known
    scorer = Scorer(recipe.data.classes) if isinstance(recipe.data, BoxData) else None
    if scorer is not None:
        size = 1  # what is found must not depend on how far a batch is filled up
    loss = torch.zeros((), dtype=torch.float64, device=device)  # ranks add up to the same
    correct: Tensor | None = None
    count = 0
    model.eval()
    with ungraded(recipe.data):
        for batch in in_order(recipe, split, size, device):
            output = p.forward(model, batch)
            counts = output.detached()
            if scorer is not None:
                scorer.add(output.found, rows(batch.inputs))
            loss += counts.loss_sum
            count += counts.count
            if counts.correct is not None:
                found = torch.as_tensor(counts.correct)
                correct = found if correct is None else correct + found
        _check_share(recipe, correct, count)
        scores = scorer.scores() if scorer is not None else _own_scores(recipe, model, split, device)
    model.train()
    return Counts(loss, correct, count, scores)


def totals(counts: list[Counts], world: World = ALONE) -> tuple[float, float | None, int]:
    """Mean loss, accuracy (None without one) and samples of several steps of all ranks; reads the device once.

    In float64, in which counts add up exactly: the ranks' totals are those of one process.
    """
    loss = torch.stack([torch.as_tensor(c.loss_sum, dtype=torch.float64) for c in counts]).sum()
    whole = world.summed(loss)
    right = [
        torch.as_tensor(c.correct, dtype=torch.float64, device=loss.device) for c in counts if c.correct is not None
    ]
    hits = torch.stack(right).sum() if right else torch.zeros_like(loss)
    numbers = torch.stack([hits, hits.new_tensor(sum(c.count for c in counts)), hits.new_tensor(len(right))])
    correct, samples, judged = world.summed(numbers).tolist()  # waits for the device
    return float(whole) / samples, correct / samples if judged else None, int(samples)


def _check_share(recipe: Recipe, correct: Tensor | None, count: int) -> None:
    """Raises RunError where accuracies of a user's own are none, which the first samples need not have shown."""
    data = recipe.data
    if correct is None or not isinstance(data, OwnData):
        return
    share = correct.item() / max(1, count)
    if share < -_ROUNDED or share > 1 + _ROUNDED:
        place = place_in(data.file, (), (data.workload.loss,))
        raise RunError(
            f"loss() of {data.file.name}{place} gave {share:g} as accuracy on the test data: return a share from 0 to "
            "1, or the loss alone."
        )


def _own_scores(
    recipe: Recipe, model: nn.Module, split: Split | OwnSplit, device: torch.device
) -> dict[str, float | None]:
    """What the user's own evaluation gives on all of a split; the first rank looks.  # all ranks"""
    data = recipe.data
    if not isinstance(data, OwnData) or not has_evaluation(data.workload):
        return {}
    found = "", 0.0
    if recipe.world.first:
        whole = replace(recipe, world=ALONE)
        begin = lambda: (b.inputs for b in in_order(whole, split, data.evaluation_batch, device))  # noqa: E731
        batches = Batches(begin, len(split), data.evaluation_batch)
        with torch.autocast(recipe.device.type, AUTOCAST.get(recipe.precision), enabled=recipe.precision in AUTOCAST):
            found = evaluated(data.workload, model, batches, data.file)
    kind, value = recipe.world.agreed(found)
    return {f"test_{kind}": value if math.isfinite(value) else None}
