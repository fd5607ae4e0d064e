"""What each loader worker of a user's own training calls first: DataLoader's `worker_init_fn`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, Subset, get_worker_info

from laptime.data.own.importing import told_with_line
from laptime.errors import UsageError
from laptime.own.protocol import Workload

Begin = Callable[[int], Any]


class Limited(Subset[Any]):
    """What a limit keeps of a user's data set."""


def own_dataset(dataset: Dataset[Any]) -> Dataset[Any]:
    """The data set as the user gave it, of which a limit may keep a part."""
    return dataset.dataset if isinstance(dataset, Limited) else dataset


def worker_begin(workload: Workload, file: Path) -> Begin | None:
    """A workload's `worker_init_fn`; None without one.

    Raises:
        UsageError: it can't be called.
        RunError: the user's code failed.
    """
    with told_with_line(f"worker_init_fn of {file.name}", file):
        found: Any = getattr(workload, "worker_init_fn", None)
    if found is not None and not callable(found):
        raise UsageError(
            f"worker_init_fn of {file.name} is a {type(found).__name__}: make it a function of a worker's number, as "
            "DataLoader takes it."
        )
    begin: Begin | None = found
    return begin


def begun(begin: Begin, dataset: Any, worker: int) -> None:
    """Calls what a user has a loader worker begin with; it finds the user's data set, within what seeds its items."""
    object.__setattr__(get_worker_info(), "dataset", dataset)  # which torch does not let others set
    begin(worker)
