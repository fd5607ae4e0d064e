"""The optimizations: pure functions from recipe to recipe, applied in the order of the catalogue's stages."""

from __future__ import annotations

from laptime.catalogue import in_stage_order, options_of
from laptime.optimizations.base import Recipe, Transform
from laptime.optimizations.compiling import compiled
from laptime.optimizations.data import resident
from laptime.optimizations.dead_taps import dead_taps
from laptime.optimizations.layout import channels_last
from laptime.optimizations.optimizer import fused_optimizer
from laptime.optimizations.precision import bf16
from laptime.optimizations.process import keep_pages, threads
from laptime.optimizations.products import products
from laptime.optimizations.schedule import large_batch
from laptime.optimizations.step import no_reads
from laptime.spec import OptimizationSpec

OPTIMIZATIONS: tuple[tuple[str, Transform], ...] = (
    ("threads", threads),
    ("keep-pages", keep_pages),
    ("resident", resident),
    ("large-batch", large_batch),
    ("dead-taps", dead_taps),
    ("products", products),
    ("channels-last", channels_last),
    ("bf16", bf16),
    ("compile", compiled),
    ("fused-optimizer", fused_optimizer),
    ("no-reads", no_reads),
)


def apply(recipe: Recipe, optimizations: tuple[OptimizationSpec, ...]) -> Recipe:
    """Applies optimizations in stage order, whatever the order they are given in."""
    transforms = dict(OPTIMIZATIONS)
    for chosen in in_stage_order(optimizations):
        recipe = transforms[chosen.name](recipe, options_of(chosen))
    return recipe
