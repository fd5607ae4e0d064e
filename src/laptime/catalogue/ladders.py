"""In which order optimizations are applied, and in which they are tried as rungs of a device's ladder."""

from __future__ import annotations

from typing import Literal

from laptime.catalogue.entries import Stage

# The order in which optimizations are applied, with the reason of each place.
STAGES: tuple[tuple[Stage, str], ...] = (
    ("process", "threads and number modes hold for everything that follows"),
    ("data", "where the samples are decides what a batch is"),
    ("schedule", "batch size, learning rate and the optimizer's rule are settled before the net is cut to them"),
    ("loss", "the loss is part of the forward that precision wraps"),
    ("model", "modules are replaced while their parameters are plain fp32 and no optimizer holds them"),
    ("layout", "memory format is a property of the parameters that the model stage left"),
    ("precision", "autocast wraps the forward of the finished model"),
    ("kernels", "chosen by timing, so layout, precision and batch must be settled"),
    ("compile", "the compiler sees the finished modules and leaves their parameters where they are"),
    ("parallel", "ranks wrap what one process would run"),
    ("optimizer", "its kernels take the final parameters"),
    ("step", "the step closes over all of the above"),
)

# The machines' side of a variant's device: what stands before the hyphen in a variant's name, and what torch calls it.
DEVICES: dict[str, Literal["cpu", "cuda"]] = {
    "cpu": "cpu",
    "cuda": "cuda",
    "ddp": "cuda",
    "cpu-ddp": "cpu",
    "dp": "cuda",
}

# Rungs whose name is not their optimization's, or that give it options: name of the rung to `name:option=value`.
# The second tries on a GPU: at batch 32 launches take the time, and what makes the device faster is not seen.
RUNGS: dict[str, str] = {
    "channels-last-large": "channels-last",
    "dead-taps-large": "dead-taps",
    "bf16-large": "bf16",
    "products-large": "products",
    "compile-layout": "compile:layout=channels-last",
    "compile-max-autotune-no-cudagraphs": "compile:mode=max-autotune-no-cudagraphs",
    "compile-reduce-overhead": "compile-graphed",
    "compile-max-autotune": "compile-graphed:mode=max-autotune",
}

# Each of them takes the place of the one before it where it is faster; the last two take the whole-step graph's too.
COMPILE_RUNGS: tuple[str, ...] = (
    "compile",
    "compile-layout",
    "compile-max-autotune-no-cudagraphs",
    "compile-reduce-overhead",
    "compile-max-autotune",
)

# Rungs of another trajectory beside the batch's, for any device, late in its ladder: they change what is learnt more
# than how fast, so each must earn its place there. OneCycle comes with large-batch,
# whose place linear-decay takes; sgd-nesterov is another optimizer;
# both are used alone.
STATISTICAL: tuple[str, ...] = (
    *("linear-decay", "label-smoothing", "flip", "crop", "decay", "ema", "progressive-resizing", "selective-backprop"),
)

# The rungs of a device in the order in which they are tried: exact, then numeric, then statistical, so that the last
# one before the first statistical rung is the fastest at the baseline's own batch and trajectory. keep-pages comes
# late: only large batches make tensors that the allocator hands back. compile comes after the batch, on a CPU last:
# what it brings depends on the batch and the precision that are left then, and a rung that joined at a small batch
# would spoil the larger one.
LADDERS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "parsed-once",
        "decoded",
        "workers",
        "resident",
        "whole-batch",
        "no-reads",
        "threads",
        "channels-last",
        "fused-optimizer",
        "dead-taps",
        "folded-norms",
        "gathered-rois",
        "bf16",
        "products",
        "fixed-shapes",
        "large-batch",
        "keep-pages",
        *STATISTICAL,
        "compile",
        "lightning",
    ),
    # Exact, then numeric at the baseline's own batch; the graph last among them, since it records what the others left.
    # bf16 comes after fp16, whose place it takes where it is faster.
    "cuda": (
        "parsed-once",
        "decoded",
        "workers",
        "pinned",
        "cudnn-benchmark",
        "channels-last",
        "no-reads",
        "resident",
        "whole-batch",
        "fused-optimizer",
        "dead-taps",
        "folded-norms",
        "tf32",
        "fp16",
        "bf16",
        "products",
        "graph",
        "fixed-shapes",
        "large-batch",
        "channels-last-large",
        "dead-taps-large",
        "bf16-large",
        "products-large",
        *COMPILE_RUNGS,
        *STATISTICAL,
        "lightning",
        "evaluate-on-cpu",
    ),
}

# Left out of the optimized variant in turn, for the headline without them.
WITHOUT: dict[str, tuple[str, ...]] = {"cpu": ("dead-taps",), "cuda": ("dead-taps",)}

# The variants on several devices: what each puts on the optimized list of its machine's side (see DEVICES), as
# `name:option=value` joined by `+`. ddp-plain is DDP as torch's tutorials use it. The weak ones show what ranks bring
# where each has a whole batch, beside the strong ones, where a batch is shared out.
PARALLEL: dict[str, dict[str, str]] = {
    "dp": {"dp": "dp"},
    "ddp": {
        "ddp-plain": "ddp",
        "ddp-tuned": "ddp:tuned=true:reduce=bf16",
        "ddp-graphed": "flat-reduce:reduce=bf16+graph",
        "ddp-tuned-weak": "ddp:tuned=true:reduce=bf16:scaling=weak",
        "ddp-graphed-weak": "flat-reduce:reduce=bf16:scaling=weak+graph",
    },
    "cpu-ddp": {
        "cpu-ddp-plain": "ddp",
        "cpu-ddp-tuned": "ddp:tuned=true",
        "cpu-ddp-flat": "flat-reduce",
        "cpu-ddp-tuned-weak": "ddp:tuned=true:scaling=weak",
    },
}
