"""Stage process: what holds for the whole process."""

from __future__ import annotations

from dataclasses import replace

import torch

from laptime.optimizations.base import Options, Recipe
from laptime.processes import allowed_cores


def threads(recipe: Recipe, options: Options) -> Recipe:
    """Sets torch's threads to the cores that affinity and quota allow, and flushes denormals."""
    count = int(options["count"]) or allowed_cores()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    return replace(recipe, notes=(*recipe.notes, f"{count} threads"))
