"""Stage optimizer: how parameters are updated."""

from __future__ import annotations

from dataclasses import replace

from laptime.optimizations.base import Options, Recipe


def fused_optimizer(recipe: Recipe, options: Options) -> Recipe:
    """Updates all parameters in one kernel."""
    return replace(recipe, optimizer_options={**recipe.optimizer_options, "fused": True})
