"""What the tutorials ask for and this machine has no room for: a large batch is halved, loader processes are fewer.

It is computed from shapes and from what the machine has, not from what is free right now, so that all variants and all
repeats of a ladder come to the same batch. Where that says that a GPU will be rather full, one step of the baseline is
tried as well, in each process; variants of a ladder run alone, so they come to the same batch by that, too.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from laptime.engine.fits import free, place_of, step_fits
from laptime.host.memory import allowed_memory
from laptime.optimizations.base import Recipe
from laptime.optimizations.loader_room import room_for_workers
from laptime.optimizations.samples import stand_in
from laptime.optimizations.shapes import SAMPLES, ShapesUnknownError, guarded, shadow_of
from laptime.values.copies import copy_of

# Smaller batches fit wherever the net does.
_ALWAYS_FITS = 64
# Of the memory, for what is estimated; the rest is the system's, the allocator's and the data's.
_SHARE = 0.8
# Below this share the estimate is taken as it is.
_SURE = 0.4
# What a step takes beside the tensors that autograd keeps, as a share of them: gradients of activations on their way.
_PASSING = 1.2
# Weights, gradients and Adam's two moments, in fp32.
_BYTES_PER_PARAMETER = 16


def fitted(recipe: Recipe, workers: int) -> Recipe:
    """The baseline's recipe with a batch and a number of loader processes for which there is room; notes tell.

    Args:
        recipe: the baseline's.
        workers: loader processes that the tutorials' loop asks for.
    """
    notes, whole = list(recipe.notes), recipe.batch_size
    size = whole // recipe.copies  # under weak scaling each rank has a batch of its own
    sample = kept_bytes(recipe) if size > _ALWAYS_FITS else None
    if sample is not None:
        fixed = _BYTES_PER_PARAMETER * sum(p.numel() for p in recipe.model.parameters())
        size, halvings = halved(size, sample, fixed, memory_of(recipe.device))
        if recipe.device.type == "cuda" and recipe.world.size == 1 and _near(size, sample, fixed, recipe.device):
            size, tries = tried(recipe, size)
            halvings += tries
        notes += halvings
        whole = size * recipe.copies if halvings else whole
    held, why = room_for_workers(recipe, workers, size)
    notes += [why] if why else []
    return replace(recipe, batch_size=whole, loading=replace(recipe.loading, workers=held), notes=tuple(notes))


def _near(size: int, sample: float, fixed: float, device: torch.device) -> bool:
    return _PASSING * sample * size + fixed > _SURE * memory_of(device)


def tried(recipe: Recipe, size: int) -> tuple[int, list[str]]:
    """Halves a batch until a step really fits, by trying it on a copy of the net; a note for each halving.

    Of several ranks each would come to a batch of its own, and a CPU's process that asks for too much is killed instead
    of being told: there the estimate has to do.
    """
    notes = []
    with torch.random.fork_rng([recipe.device] if recipe.device.type == "cuda" else []):
        while size > _ALWAYS_FITS and not _tried_once(recipe, size):
            notes.append(f"a batch of {size} ran out of {place_of(recipe.device)}: halved to {size // 2}")
            size //= 2
    return size, notes


def _tried_once(recipe: Recipe, size: int) -> bool:
    copied = replace(recipe, model=copy_of(recipe.model).to(recipe.device))
    fits = step_fits(copied, size)
    del copied
    free(recipe)
    return fits


def kept_bytes(recipe: Recipe) -> float | None:
    """Bytes that autograd keeps of each sample between forward and backward, by a run on shapes.

    Returns:
        None where the net can't be run on shapes.
    """
    try:
        model = shadow_of(recipe.model).train()
    except ShapesUnknownError:
        return None
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    seen: dict[int, int] = {}
    batch = stand_in(recipe, SAMPLES)
    outputs: list[Tensor] = []  # holds the graph, so that no storage is freed and its address given twice

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            seen[storage._cdata] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        try:
            guarded(lambda: outputs.append(recipe.workload.forward(model, batch).loss))
        except ShapesUnknownError:
            return None
    return sum(seen.values()) / len(batch)


def halved(size: int, sample: float, fixed: float, memory: float) -> tuple[int, list[str]]:
    """Halves a batch until a step fits; a note for each halving.

    Args:
        size: the batch that is asked for.
        sample: bytes that autograd keeps of a sample.
        fixed: bytes that do not depend on the batch.
        memory: bytes of the device.
    """
    notes = []
    while size > _ALWAYS_FITS and (needed := _PASSING * sample * size + fixed) > _SHARE * memory:
        notes.append(
            f"a batch of {size} needs about {needed / 2**30:.1f} GiB and the device has {memory / 2**30:.1f}: "
            f"halved to {size // 2}"
        )
        size //= 2
    return size, notes


def memory_of(device: torch.device) -> int:
    """Bytes of a device's memory; of a CPU's what this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return allowed_memory()
