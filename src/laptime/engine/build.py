"""From a spec to what the loop works with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from laptime.catalogue import find_optimization, find_workload, of_stage, options_of
from laptime.data.boxes.tensors import BoxData, open_boxes
from laptime.data.lightning.module import LightningWorkload
from laptime.data.own.opened import OwnData, open_run
from laptime.data.tensors import ImageData, limit, open_tensors
from laptime.devices import require_scoring
from laptime.engine.room import fitted
from laptime.errors import UsageError, shorten
from laptime.optimizations import apply
from laptime.optimizations.augment import Augmented
from laptime.optimizations.base import (
    AnyData,
    ConstantRate,
    Loader,
    Loading,
    Mark,
    Parts,
    Recipe,
    adam,
    constant,
    unclipped,
)
from laptime.optimizations.boxes import mirrored
from laptime.optimizations.data import items
from laptime.optimizations.optimizer import build_optimizer, sgd
from laptime.optimizations.passes import in_parts, one_pass, with_parts_told
from laptime.optimizations.selecting import Selecting
from laptime.optimizations.step import clipping, tutorial_step
from laptime.spec import OptimizationSpec, RunSpec
from laptime.values.draws import seed_all
from laptime.values.tallies import Numbers, numbers_of
from laptime.workloads import find
from laptime.workloads.detection import resize_to
from laptime.workloads.own import OwnWorkload, clip_norm, own_optimizer, own_schedule, workload_name
from laptime.workloads.own_optimizer import check_groups
from laptime.world import ALONE, World


def find_device(name: str, world: World = ALONE) -> torch.device:
    """The device of a spec, a rank's own where there are several; raises UsageError where this machine has none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"device cuda was asked for, but torch finds no CUDA device here ({_without_cuda()}): give --device cpu, "
            "or install a torch and a driver that fit together."
        )
    return world.device if world.grouped else torch.device(name)


def _without_cuda() -> str:
    """What torch says where it has no CUDA: it is for CPUs alone, there is no driver, or one that is too old."""
    try:
        torch.cuda.init()
    except Exception as error:  # of three types
        return shorten(" ".join(str(error).split()).partition(". ")[0], 200)
    return "it counts none"


def as_made(model: nn.Module) -> None:
    """Leaves the weights as the workload has made them."""


def make_recipe(
    spec: RunSpec,
    data: AnyData,
    optimizations: tuple[OptimizationSpec, ...],
    world: World = ALONE,
    start: Callable[[nn.Module], None] = as_made,
) -> Recipe:
    """Builds the baseline's recipe and applies optimizations to it.

    The model's initial weights depend on the seed alone, so that all variants of a repeat start from the same ones.

    Args:
        spec: the run.
        data: what it trains on.
        optimizations: in any order.
        world: the ranks that train one net.
        start: changes the fresh net's weights before anything else is done to it.

    Raises:
        UsageError: several ranks, and no optimization that makes them train one net.
    """
    exchanges = of_stage(optimizations, "parallel")
    if world.size > 1 and not exchanges:
        raise UsageError(
            f"variant {spec.variant!r} does not train on {world.size} ranks: add ddp or flat-reduce, or give one rank."
        )
    copies = world.size if any(options_of(o).get("scaling") == "weak" for o in exchanges) else 1
    workload = OwnWorkload(workload_name(spec), data) if isinstance(data, OwnData) else find(spec.workload)
    seed_all(spec.seed)
    user = data.workload if isinstance(data, OwnData) else None
    if isinstance(user, LightningWorkload):
        user.shared_by(copies)
    channels, height, width = _image_shape(data)
    model = workload.make_model(len(data.classes), spec.weights, channels)
    start(model)
    baseline = Recipe(
        workload=workload,
        model=model,
        data=data,
        device=find_device(spec.device, world),
        image_size=(height, width),
        batch_size=min(spec.batch_size * copies, len(data.train)),
        learning_rate=spec.learning_rate * math.sqrt(copies),  # the rule for Adam, see large_batch
        epochs=spec.epochs,
        seed=spec.seed,
        make_loader=items,
        forward=workload.forward,
        step=tutorial_step,
        world=world,
        copies=copies,
        make_optimizer=own_optimizer(user) or adam,
        make_schedule=own_schedule(user, spec.epochs) or constant,
        clip_norm=clip_norm(user),
        micro_batch=data.micro_batch if isinstance(data, OwnData) else None,
        notes=data.notes if isinstance(data, OwnData) else (),
    )
    if isinstance(data, BoxData):
        if data.side:
            resize_to(model, data.side)
        baseline = replace(baseline, augments=(mirrored(baseline),))
    if not isinstance(data, OwnData):  # a user's own batch and optimizer are meant as they are
        entry = find_workload(spec.workload)
        if entry.sgd:
            baseline = replace(baseline, make_optimizer=sgd, optimizer_options=dict(entry.sgd))
        baseline = fitted(replace(baseline, loading=Loading(page_locked=entry.page_locked)), entry.workers)
    recipe = apply(baseline, optimizations)
    recipe = with_parts_told(recipe)
    if isinstance(data, OwnData) and recipe.make_optimizer is baseline.make_optimizer:
        check_groups(data, model, recipe.model, spec.learning_rate)
    return recipe


def _image_shape(data: AnyData) -> tuple[int, int, int]:
    """Channels, height and width of the images; zeros where they differ, or where there need be none."""
    if not isinstance(data, ImageData):
        return 0, 0, 0
    height, width = data.train.images.shape[1:3]
    return len(data.mean), int(height), int(width)


def open_data(spec: RunSpec) -> AnyData:
    """Opens a spec's data, within its limits; raises a LaptimeError where they are not what was planned with."""
    refuse_unfit(spec)
    if spec.data.own is None and find_workload(spec.workload).boxes:
        require_scoring()
        return open_boxes(spec.data, spec.limit_train, spec.limit_test)
    if spec.data.own is not None:
        return open_run(spec.data, spec.limit_train, spec.limit_test, spec.epochs)
    whole = open_tensors(spec.data)
    train = limit(whole.train, spec.limit_train, "train")
    return replace(whole, train=train, test=limit(whole.test, spec.limit_test, "test"))


def refuse_unfit(spec: RunSpec) -> None:
    """Refuses optimizations that are not for this workload; raises UsageError."""
    own = spec.data.own
    refused = own.refused if own else find_workload(spec.workload).refused
    for chosen in spec.optimizations:
        only = find_optimization(chosen.name).workload
        reason = refused.get(chosen.name)
        if only and (own or only != spec.workload):
            reason = f"it is for the workload {only} alone"
        if reason is not None:
            raise UsageError(f"{chosen.name} is not for {spec.workload}: {reason}. Leave it out of {spec.variant}.")


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
    loader: Loader = recipe.make_loader(recipe)
    if recipe.augments:
        loader = Augmented(loader, recipe)
    if recipe.selection is not None:
        loader = Selecting(loader, recipe.selection)
    if isinstance(recipe.workload, OwnWorkload):
        recipe.workload.paced(len(loader), recipe.epochs, recipe.batch_size)
    parts = Parts(
        model=model,
        net=net,
        optimizer=build_optimizer(recipe, model),
        schedule=ConstantRate(),
        loader=loader,
        forward=recipe.forward,
        step=recipe.step,
        mark=mark,
        device=recipe.device,
        exchange=recipe.exchange,
        average=recipe.make_average(model, len(loader)) if recipe.make_average else None,
        scaler=GradScaler(recipe.device.type, enabled=recipe.loss_scaling),
        driver=recipe.driver,
        passes=one_pass if recipe.micro_batch is None else partial(in_parts, recipe.micro_batch, recipe.relaunched),
        clip=unclipped if recipe.clip_norm is None else clipping(recipe.clip_norm, _is_lightning(recipe)),
        numbers=_numbers(recipe, model),
    )
    if isinstance(recipe.workload, OwnWorkload):
        recipe.workload.stepping(parts)
    return parts


def _is_lightning(recipe: Recipe) -> bool:
    return isinstance(recipe.workload, OwnWorkload) and recipe.workload.is_lightning


def _numbers(recipe: Recipe, model: nn.Module) -> Numbers:
    """What code of the user's own counts: in the object, since its net was made, in the net, and in globals."""
    own = recipe.workload
    return [*own.numbers, *numbers_of(model), *own.globals] if isinstance(own, OwnWorkload) else []
