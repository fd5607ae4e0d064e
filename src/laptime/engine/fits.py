"""The largest batch that fits, after one did not: so that the error can name it."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from laptime.optimizations.base import Recipe
from laptime.workloads.base import Batch


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the host."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def largest_part(batch_size: int, fits: Callable[[int], bool]) -> int | None:
    """Halves a batch until it fits.

    Args:
        batch_size: the batch that did not fit, tried again as the first.
        fits: tries one size.

    Returns:
        The first size that fits; None where none does.
    """
    size = batch_size
    while size >= 1:
        if fits(size):
            return size
        size //= 2
    return None


def explain_memory(recipe: Recipe) -> str | None:
    """One sentence that names the largest power-of-two part of the batch that fits, by a forward and a backward each.

    Returns:
        None where the batch itself fits: something else took the memory.
    """
    found = largest_part(recipe.batch_size, lambda size: _fits(recipe, size))
    if found == recipe.batch_size:
        return None
    what = f"batch {recipe.batch_size} does not fit on {_place(recipe.device)}"
    if found is None:
        return f"{what}, and neither does a single image: give a device with more memory."
    return (
        f"{what}; {found} is the largest power-of-two part that does: give --set large-batch.size={found} "
        f"(a variant without large-batch takes +large-batch:size={found})."
    )


def _fits(recipe: Recipe, size: int) -> bool:
    free(recipe)
    height, width = recipe.image_size
    try:
        recipe.model.to(recipe.device).train()
        images = torch.zeros(size, 3, height, width, device=recipe.device)
        if recipe.channels_last:
            images = images.to(memory_format=torch.channels_last)
        labels = torch.zeros(size, dtype=torch.int64, device=recipe.device)
        recipe.forward(recipe.model, Batch(images, labels)).loss.backward()
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


def _place(device: torch.device) -> str:
    if device.type != "cuda":
        return "this machine's memory"
    memory = torch.cuda.get_device_properties(device).total_memory
    return f"{torch.cuda.get_device_name(device)} ({memory / 2**30:.0f} GiB)"
