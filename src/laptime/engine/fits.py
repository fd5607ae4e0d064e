"""The largest batch that fits, after one did not: so that the error can name it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn

from laptime.data.own.opened import OwnData
from laptime.optimizations.base import Recipe
from laptime.optimizations.graph import recording_of
from laptime.optimizations.passes import samples_of_a_pass
from laptime.optimizations.samples import stand_in
from laptime.optimizations.sync_batchnorm import GlooBatchNorm
from laptime.values.copies import copy_of

# The allocator of the host; torch's for CUDA, where a compiler hands on what it said; CUDA where another one asks
# (contexts, graphs, page-locked memory); cuBLAS, and cuDNN before 9; cuDNN since; NCCL.
_NO_MEMORY = (
    *("can't allocate memory", "CUDA out of memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED"),
    *("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    "Cuda failure 2 'out of memory'",
)
# What BatchNorm says of one, where its map is a single value.
_ALONE = "Expected more than 1 value per channel when training"
# Copies of a trained parameter that a run holds beside a step: where the warm-up began, and Adam's two moments.
_HELD = 3
_RECORDING = (
    "a step of {size} samples fits, but not beside its recording as a CUDA graph, which keeps memory of its own: give "
    "half the batch (large-batch:size={half}), or leave the graph out."
)
# BatchNorm takes no single sample.
_LEAST = 2

T = TypeVar("T")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the host."""
    said = str(error)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in said for words in _NO_MEMORY)


def of_one_sample(error: BaseException) -> str | None:
    """What to do where BatchNorm was given a batch of a single sample, without a full stop; None of any other error."""
    if _ALONE not in str(error):
        return None
    return (
        "a batch of one sample can't be normalized by BatchNorm: give two training samples at least, by --limit-train "
        "or more data, and a batch of two, or where it goes through the net in parts micro_batch_size = 3"
    )


def largest_part(batch_size: int, fits: Callable[[int], bool], least: int = 1) -> int | None:
    """Halves a batch until it fits.

    Args:
        batch_size: the batch that did not fit, tried again as the first.
        fits: tries one size.
        least: the smallest size that makes sense.

    Returns:
        The first size that fits; None where none does.
    """
    size = batch_size
    while size >= least:
        if fits(size):
            return size
        size //= 2
    return None


def with_room(recipe: Recipe, work: Callable[[int], T]) -> tuple[int, T]:
    """Does work on a batch of the recipe's size, or on the largest power-of-two part of it that it has room for.

    Of several ranks the others wait for one that fails, so theirs is the whole batch or none.

    Returns:
        The size, and what the work gave.
    """
    size = recipe.batch_size
    while True:
        free(recipe)
        try:
            return size, work(size)
        except (MemoryError, RuntimeError) as error:
            if recipe.world.size > 1 or size // 2 < _LEAST or not out_of_memory(error):
                raise
        size //= 2  # only here: the error above held what did not fit


def explain_memory(recipe: Recipe) -> str | None:
    """One sentence that names the largest power-of-two part of the batch that fits, by a forward and a backward each.

    Where there are several ranks, each size is that of all together, and this rank tries its part.

    Returns:
        None where the batch itself fits: something else took the memory, which is named where it is the recording of a
        CUDA graph; and where nothing can be tried, since the ranks share BatchNorm's statistics and the others no
        longer answer.
    """
    ranks = recipe.world.size
    if ranks > 1 and any(isinstance(m, GlooBatchNorm | nn.SyncBatchNorm) for m in recipe.model.modules()):
        return None
    free(recipe)
    if ranks > 1:  # DDP's hooks stand on the parameters that it wrapped, and would wait for the others
        recipe = replace(recipe, model=copy_of(recipe.model))
    if samples_of_a_pass(recipe) * ranks < recipe.batch_size:
        return _of_parts(recipe)
    least = 1 if ranks == 1 else 2 * ranks
    found = largest_part(recipe.batch_size, lambda size: step_fits(recipe, -(-size // ranks)), least)
    if found == recipe.batch_size:
        return _of_recording(recipe)
    what = f"batch {recipe.batch_size} does not fit on {place_of(recipe.device)}"
    if found is None:
        smallest = "a single sample" if ranks == 1 else f"the smallest batch of {ranks} ranks"
        return f"{what}, and neither does {smallest}: give a device with more memory."
    size = found // recipe.copies  # under weak scaling the option is a rank's part
    remedy = f"give --set large-batch.size={size} (a variant without large-batch takes +large-batch:size={size})"
    if isinstance(recipe.data, OwnData):
        remedy += f", or {recipe.data.file.name} a micro_batch_size of {found // ranks}, which keeps the batch"
    return f"{what}; {found} is the largest power-of-two part that does: {remedy}."


def _of_parts(recipe: Recipe) -> str | None:
    """`explain_memory` of batches that go through the net in parts, which differ by a sample at most."""
    size = samples_of_a_pass(recipe)
    found = largest_part(size, lambda part: step_fits(recipe, part))
    if found == size:
        return _of_recording(recipe)
    what = f"a micro batch of {size} does not fit on {place_of(recipe.device)}"
    if found is None:
        return f"{what}, and neither does a single sample: give a device with more memory."
    return f"{what}; {found} is the largest power-of-two part that does: give a micro_batch_size of {found}."


def _of_recording(recipe: Recipe) -> str | None:
    """What to say where the batch fits: the recording took the memory, or something that is not known."""
    if recording_of(recipe.step) is None:
        return None
    return _RECORDING.format(size=recipe.batch_size, half=recipe.batch_size // 2 // recipe.copies)


def step_fits(recipe: Recipe, size: int) -> bool:
    """Whether a forward and a backward of so many samples fit beside what a run holds, by trying them.

    On the recipe's own model, whose gradients are dropped.
    """
    free(recipe)
    try:
        recipe.model.to(recipe.device).train()
        held = [torch.empty_like(p) for p in recipe.model.parameters() for _ in range(_HELD if p.requires_grad else 1)]
        recipe.forward(recipe.model, stand_in(recipe, size, recipe.device)).loss.backward()
        del held
    except (MemoryError, RuntimeError) as error:
        if out_of_memory(error):
            return False
        raise
    finally:
        free(recipe)
    return True


def free(recipe: Recipe) -> None:
    """Gives back what the failed step held."""
    recipe.model.zero_grad(set_to_none=True)
    gc.collect()
    if recipe.device.type == "cuda":
        torch.cuda.empty_cache()


def place_of(device: torch.device) -> str:
    """A device's memory in words."""
    if device.type != "cuda":
        return "this machine's memory"
    memory = torch.cuda.get_device_properties(device).total_memory
    return f"{torch.cuda.get_device_name(device)} ({memory / 2**30:.0f} GiB)"
