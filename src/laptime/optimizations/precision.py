"""Stage precision: the number format of convolutions and matrix products."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import nn

from laptime.optimizations.base import Forward, Options, Recipe
from laptime.workloads.base import Batch, Output

# Formats that autocast knows, by the name that a recipe's precision has.
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def bf16(recipe: Recipe, options: Options) -> Recipe:
    """Runs the forward pass under bfloat16 autocast; weights, gradients and optimizer state stay fp32."""
    return replace(recipe, forward=under_autocast(recipe.forward, recipe.device.type, "bf16"), precision="bf16")


def fp16(recipe: Recipe, options: Options) -> Recipe:
    """Runs the forward pass under float16 autocast and scales the loss, so that small gradients do not vanish.

    The optimizer is the fused one: it takes the scale and the verdict on infinite gradients as tensors, while any
    other one makes the scaler read that verdict in each step.
    """
    return replace(
        recipe,
        forward=under_autocast(recipe.forward, recipe.device.type, "fp16"),
        precision="fp16",
        loss_scaling=True,
        optimizer_options={**recipe.optimizer_options, "fused": True},
    )


def under_autocast(forward: Forward, device: str, precision: str) -> Forward:
    """The forward pass with convolutions and products in a format of `AUTOCAST`, backward as that then has it."""

    def cast(model: nn.Module, batch: Batch) -> Output:
        with torch.autocast(device, AUTOCAST[precision]), rounding_anew(model):
            return forward(model, batch)

    return cast


def rounding_anew(net: nn.Module) -> AbstractContextManager[object]:
    """Has each call of a net round its weights anew, within it, or from here on where nobody leaves it.

    Autocast rounds a weight once and keeps that until it ends: where a loss changes weights between two calls of the
    net (SAM's, noise on weights), the second would be that of the weights before.
    """
    if isinstance(net, torch.jit.ScriptModule):  # which takes no hooks
        return nullcontext()
    return net.register_forward_pre_hook(lambda *_: torch.clear_autocast_cache())
