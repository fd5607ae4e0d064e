"""Whether what a user gives as data are samples by number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from laptime.errors import UsageError


def check_mapped(name: str, dataset: Any, made: tuple[Path, str]) -> None:
    """Raises UsageError for what is no data set with samples; `made` is the file and where in it the data come from."""
    file, place = made
    said = f"the {name} data of {file.name} are"
    if isinstance(dataset, DataLoader):
        raise UsageError(f"{said} a DataLoader{place}: return the data set in it, since laptime makes the loaders.")
    if isinstance(dataset, IterableDataset):
        raise UsageError(
            f"{said} an IterableDataset ({type(dataset).__name__}){place}, of which no sample can be drawn by its "
            f"number: give a map-style data set, a list of what it yields perhaps{_by_number(dataset)}."
        )
    if _by_name(dataset):
        raise UsageError(
            f"{said} a {type(dataset).__name__}{place}, which gives columns by their names and no samples by their "
            "numbers: give a map-style data set around it, whose __getitem__(i) takes one row (frame.iloc[i], say)."
        )
    # torch's Dataset has a __getitem__ that only says that there is none.
    lacking = [n for n in ("__len__", "__getitem__") if getattr(type(dataset), n, None) is getattr(Dataset, n, None)]
    if lacking:
        raise UsageError(
            f"{said} a {type(dataset).__name__} without {' and '.join(lacking)}{place}: give a map-style data set, as "
            "torch.utils.data.Dataset is."
        )
    if not len(dataset):
        raise UsageError(f"the {name} data of {file.name} are empty{place}: give at least one sample.")


def _by_number(dataset: Any) -> str:
    """What to do with a stream that has items by their numbers, too, as those of MosaicML and litdata have."""
    own = getattr(type(dataset), "__getitem__", None) is not getattr(Dataset, "__getitem__", None)
    return (
        ", or, since it has items, too, Subset(data, range(len(data)))" if own and hasattr(dataset, "__len__") else ""
    )


def _by_name(dataset: Any) -> bool:
    """Whether something holds columns or parts by name, as a dictionary or a data frame of pandas does."""
    frame = hasattr(dataset, "iloc") and getattr(dataset, "ndim", 0) == 2
    return frame or (isinstance(dataset, Mapping) and 0 not in dataset)
