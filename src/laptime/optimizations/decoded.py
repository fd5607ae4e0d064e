"""Stage data: a user's images that are decoded once, where random transforms have each item made anew."""

from __future__ import annotations

from dataclasses import replace

from laptime.data.decoded import decoded, needed_bytes
from laptime.data.own.opened import OwnData
from laptime.errors import UsageError
from laptime.host.memory import free_memory
from laptime.host.processes import allowed_cores
from laptime.optimizations.base import Options, Recipe
from laptime.optimizations.resident import no_room


def keep_decoded(recipe: Recipe, options: Options) -> Recipe:
    """Reads the files of a user's image folder ahead; its transforms run on each item as before.

    Forked loader processes share the images. Where they leave too little room, files are read as before.
    """
    data = recipe.data
    if not isinstance(data, OwnData):
        raise UsageError(f"decoded is for a training of your own: leave it out for {recipe.workload.name}.")
    free = free_memory() // recipe.world.here
    if (note := no_room(needed_bytes(data.train.dataset), free, free)) is not None:
        return replace(recipe, notes=(*recipe.notes, note))
    train = replace(data.train, dataset=decoded(data.train.dataset, allowed_cores()))
    return replace(recipe, data=replace(data, train=train))
