"""In which order optimizations are applied, and in which they are tried as rungs of a device's ladder."""

from __future__ import annotations

from typing import Literal

from laptime.entries import Stage

# The order in which optimizations are applied, with the reason of each place.
STAGES: tuple[tuple[Stage, str], ...] = (
    ("process", "threads and number modes hold for everything that follows"),
    ("data", "where the samples are decides what a batch is"),
    ("schedule", "batch size and learning rate are settled before the net is cut to them"),
    ("loss", "the loss is part of the forward that precision wraps"),
    ("model", "modules are replaced while their parameters are plain fp32 and no optimizer holds them"),
    ("layout", "memory format is a property of the parameters that the model stage left"),
    ("precision", "autocast wraps the forward of the finished model"),
    ("kernels", "chosen by timing, so layout, precision and batch must be settled"),
    ("compile", "the compiler sees the finished modules and leaves their parameters where they are"),
    ("parallel", "ranks wrap what one process would run"),
    ("optimizer", "it takes the final parameters"),
    ("step", "the step closes over all of the above"),
)

# The machines' side of a variant's device: what stands before the hyphen in a variant's name, and what torch calls it.
DEVICES: dict[str, Literal["cpu", "cuda"]] = {"cpu": "cpu", "cuda": "cuda"}

# Rungs whose optimization has options that differ from its defaults: name of the rung to `name:option=value`.
RUNGS: dict[str, str] = {
    "compile-reduce-overhead": "compile:mode=reduce-overhead",
    "compile-max-autotune": "compile:mode=max-autotune",
    "compile-max-autotune-no-cudagraphs": "compile:mode=max-autotune-no-cudagraphs",
    "compile-layout": "compile:layout=channels-last",
}

# Each of them takes the place of the one before it where it is faster. Two are a GPU's alone: CUDA graphs have no
# counterpart on a CPU, and nothing is autotuned there.
COMPILE_RUNGS: tuple[str, ...] = (
    "compile",
    "compile-layout",
    "compile-reduce-overhead",
    "compile-max-autotune-no-cudagraphs",
    "compile-max-autotune",
)

# The rungs of a device in the order in which they are tried: exact, then numeric, then statistical, so that the last
# one before the first statistical rung is the fastest at the baseline's own batch and trajectory. keep-pages comes
# late: only large batches make tensors that the allocator hands back. compile comes last: what it brings depends on
# the batch and the precision that are left then, and a rung that joined at a small batch would spoil the larger one.
LADDERS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "resident",
        "no-reads",
        "threads",
        "channels-last",
        "fused-optimizer",
        "dead-taps",
        "bf16",
        "products",
        "large-batch",
        "keep-pages",
        "compile",
    ),
}

# Left out of the optimized variant in turn, for the headline without them.
WITHOUT: dict[str, tuple[str, ...]] = {"cpu": ("dead-taps",)}
