"""The workload of a LightningModule with the data that its file has for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laptime.data.lightning.module import DATA, LightningWorkload
from laptime.data.lightning.refused import is_lightning
from laptime.errors import UsageError, shorten


def of_lightning(given: Any, data_name: str, module: Any, file: Path) -> LightningWorkload:
    """The workload of a LightningModule.

    Args:
        given: the module, its class, or a function that makes it.
        data_name: the file's name for its LightningDataModule; empty where the user gave none.
        module: the user's file, imported.
        file: the user's.

    Raises:
        UsageError: there is no data for it, or it is more than laptime's loop can do.
    """
    if data_name and not hasattr(module, data_name):
        raise UsageError(f"{file.name} has no {shorten(data_name)!r}: name its {DATA} behind the comma.")
    workload = LightningWorkload(given, file)
    if data_name:
        return workload.loading_from(getattr(module, data_name))
    if workload.loading is not None:
        return workload
    mine = {n: v for n, v in vars(module).items() if is_lightning(v, DATA) and _is_of(v, module.__name__)}
    if len(mine) != 1:
        said = f"has {len(mine)} ({', '.join(sorted(mine))})" if mine else "has none"
        raise UsageError(
            f"{workload.title} has no train_dataloader(), so its data come from a {DATA}, of which {file.name} {said}: "
            f"name one behind a comma, {file.name}:NAME,DATA."
        )
    return workload.loading_from(next(iter(mine.values())))


def _is_of(value: object, module: str) -> bool:
    """Whether a file defines a class, or has an object: that may be of Lightning's own class (`from_datasets`)."""
    return not isinstance(value, type) or value.__module__ == module
