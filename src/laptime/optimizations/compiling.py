"""Stage compile: the training step's net through torch.compile; evaluation and state stay with the plain module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from laptime.devices import missing_compiler
from laptime.errors import RunError, UsageError
from laptime.optimizations.base import Options, Recipe, Wrap

# CUDA graphs inside warm up at the first call of a shape and record at the second; the third replays.
_CALLS = 3
_GRAPHED = ("reduce-overhead", "max-autotune")
# What inductor is told where convolutions and what lies between them are to stay in NHWC: it decides by itself only
# for some nets, and by default hands tensors out in the strides that eager code would have had.
_CHANNELS_LAST = {"layout_optimization": True, "force_layout_optimization": True, "keep_output_stride": False}


def compiled(recipe: Recipe, options: Options) -> Recipe:
    """Compiles the net that a training step calls, one graph for each size of batch unless `dynamic`.

    The parameters stay those of the plain module, so that the optimizer, evaluation, checkpoints and the reset after
    warm-up don't know of it. The loss lies outside the graph: with CUDA graphs inside, what a step returns is then
    never overwritten by the next one.

    Raises:
        UsageError: a layout that this torch does not have.
        RunError: the backend needs a compiler that this machine does not have.
    """
    arguments: dict[str, Any] = {"backend": str(options["backend"]), "dynamic": bool(options["dynamic"])}
    if arguments["backend"] == "inductor":
        missing = missing_compiler(recipe.device.type)
        if missing:
            raise RunError(f"compile can't run here: {missing}, or leave compile out.")
        arguments["options"] = inductor_options(str(options["mode"]), str(options["layout"]))
    return replace(
        recipe,
        wrappers=(*recipe.wrappers, _wrap(arguments)),
        compiled=True,
        relaunched=str(options["mode"]) in _GRAPHED,
        warmup_calls=max(recipe.warmup_calls, _CALLS),
    )


def inductor_options(mode: str, layout: str) -> dict[str, Any] | None:
    """The settings of a mode and a layout; torch.compile takes either a mode or options, so the mode is written out.

    Raises:
        UsageError: a layout that this torch does not have.
    """
    from torch._inductor import list_mode_options, list_options

    settings = _CHANNELS_LAST if layout == "channels-last" else {}
    absent = settings.keys() - set(list_options())
    if absent:
        raise UsageError(
            f"compile:layout={layout} needs inductor's option {min(absent)!r}, which torch {torch.__version__} does "
            "not have: leave the option out."
        )
    return {**list_mode_options(mode), **settings} or None


def _wrap(arguments: dict[str, Any]) -> Wrap:
    compile_module = cast("Callable[..., nn.Module]", torch.compile)

    def wrap(net: nn.Module) -> nn.Module:
        return compile_module(net, **arguments)

    return wrap
