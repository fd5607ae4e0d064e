"""From a spec to what the loop works with."""

from __future__ import annotations

import torch
from torch.amp.grad_scaler import GradScaler

from laptime.data.tensors import ImageData
from laptime.errors import UsageError
from laptime.optimizations import apply
from laptime.optimizations.base import ConstantRate, Mark, Parts, Recipe, adam
from laptime.optimizations.data import items
from laptime.optimizations.step import tutorial_step
from laptime.spec import OptimizationSpec, RunSpec
from laptime.workloads import find


def find_device(name: str) -> torch.device:
    """The device of a spec; raises UsageError where this machine has none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("device cuda was asked for, but torch finds no CUDA device here: give --device cpu.")
    return torch.device(name)


def make_recipe(spec: RunSpec, data: ImageData, optimizations: tuple[OptimizationSpec, ...]) -> Recipe:
    """Builds the baseline's recipe and applies optimizations to it.

    The model's initial weights depend on the seed alone, so that all variants of a repeat start from the same ones.
    """
    workload = find(spec.workload)
    torch.manual_seed(spec.seed)
    model = workload.make_model(len(data.classes), spec.weights)
    height, width = data.train.images.shape[1:3]
    baseline = Recipe(
        workload=workload,
        model=model,
        data=data,
        device=find_device(spec.device),
        image_size=(int(height), int(width)),
        batch_size=min(spec.batch_size, len(data.train.labels)),
        learning_rate=spec.learning_rate,
        epochs=spec.epochs,
        seed=spec.seed,
        make_loader=items,
        forward=workload.forward,
        step=tutorial_step,
    )
    return apply(baseline, optimizations)


def build(recipe: Recipe, mark: Mark) -> Parts:
    """Builds the parts of a finished recipe on its device.

    The schedule is not started: warm-up steps don't count, `reset` starts it.
    """
    recipe.modes.apply()
    model = recipe.model.to(recipe.device)
    model.train()
    net = model
    for wrap in recipe.wrappers:
        net = wrap(net)
    rate = torch.tensor(recipe.learning_rate, device=recipe.device) if recipe.rate_on_device else recipe.learning_rate
    optimizer = adam(model.parameters(), rate, **recipe.optimizer_options)
    return Parts(
        model=model,
        net=net,
        optimizer=optimizer,
        schedule=ConstantRate(),
        loader=recipe.make_loader(recipe),
        forward=recipe.forward,
        step=recipe.step,
        mark=mark,
        device=recipe.device,
        exchange=recipe.exchange,
        scaler=GradScaler(recipe.device.type, enabled=recipe.loss_scaling),
    )
