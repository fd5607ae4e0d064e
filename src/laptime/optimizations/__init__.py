"""The optimizations: pure functions from recipe to recipe, applied in the order of the catalogue's stages."""

from __future__ import annotations

from dataclasses import replace

from laptime.catalogue import in_stage_order, options_of
from laptime.optimizations.augment import crop, flip, progressive_resizing
from laptime.optimizations.average import ema
from laptime.optimizations.base import Recipe, Transform
from laptime.optimizations.boxes import fixed_shapes, parsed_once
from laptime.optimizations.compiling import compiled
from laptime.optimizations.dead_taps import dead_taps
from laptime.optimizations.decoded import keep_decoded
from laptime.optimizations.folding import folded_norms
from laptime.optimizations.graph import graph
from laptime.optimizations.layout import channels_last
from laptime.optimizations.lightning import lightning
from laptime.optimizations.loader import pinned, workers
from laptime.optimizations.loss import label_smoothing
from laptime.optimizations.optimizer import decay, fused_optimizer, sgd_nesterov
from laptime.optimizations.parallel import ddp, dp, flat_reduce
from laptime.optimizations.passes import whole_batch
from laptime.optimizations.pooling import gathered_rois
from laptime.optimizations.precision import bf16, fp16
from laptime.optimizations.process import cudnn_benchmark, evaluate_on_cpu, keep_pages, tf32, threads
from laptime.optimizations.products import products
from laptime.optimizations.resident import resident
from laptime.optimizations.schedule import large_batch, linear_decay, onecycle
from laptime.optimizations.selecting import selective_backprop
from laptime.optimizations.step import no_reads
from laptime.spec import OptimizationSpec

OPTIMIZATIONS: tuple[tuple[str, Transform], ...] = (
    ("threads", threads),
    ("keep-pages", keep_pages),
    ("parsed-once", parsed_once),
    ("fixed-shapes", fixed_shapes),
    ("decoded", keep_decoded),
    ("resident", resident),
    ("large-batch", large_batch),
    ("whole-batch", whole_batch),
    ("dead-taps", dead_taps),
    ("folded-norms", folded_norms),
    ("gathered-rois", gathered_rois),
    ("products", products),
    ("channels-last", channels_last),
    ("bf16", bf16),
    ("ddp", ddp),
    ("flat-reduce", flat_reduce),
    ("dp", dp),
    ("compile", compiled),
    ("compile-graphed", compiled),
    ("fused-optimizer", fused_optimizer),
    ("no-reads", no_reads),
    ("sgd-nesterov", sgd_nesterov),
    ("onecycle", onecycle),
    ("linear-decay", linear_decay),
    ("decay", decay),
    ("label-smoothing", label_smoothing),
    ("selective-backprop", selective_backprop),
    ("flip", flip),
    ("crop", crop),
    ("progressive-resizing", progressive_resizing),
    ("workers", workers),
    ("pinned", pinned),
    ("cudnn-benchmark", cudnn_benchmark),
    ("tf32", tf32),
    ("fp16", fp16),
    ("graph", graph),
    ("ema", ema),
    ("evaluate-on-cpu", evaluate_on_cpu),
    ("lightning", lightning),
)


def apply(recipe: Recipe, optimizations: tuple[OptimizationSpec, ...]) -> Recipe:
    """Applies optimizations in stage order, whatever the order they are given in."""
    transforms = dict(OPTIMIZATIONS)
    for chosen in in_stage_order(optimizations):
        recipe = transforms[chosen.name](recipe, options_of(chosen))
        recipe = replace(recipe, applied=(*recipe.applied, chosen))
    return recipe
