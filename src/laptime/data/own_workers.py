"""Whether worker processes can fetch a user's items; where not, the line of the user's code that is in the way."""

from __future__ import annotations

import faulthandler
import multiprocessing
import pickle
import tempfile
import warnings
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any

from torch.utils.data import DataLoader, Subset

from laptime.data.own import OwnData, OwnSplit
from laptime.trees import Tree, leaves
from laptime.user_code import complaint, place_in, stack_in

PATIENCE_S = 20
# A worker says where it stands that long before it is given up.
_BEFORE_S = 2
# The watchdog writes to its descriptor.
_open: list[IO[str]] = []


def refused_workers(data: OwnData) -> dict[str, str]:
    """Why worker processes can't fetch the training items: one is started and asked for a batch."""
    split, file = data.train, data.file
    makers = _makers(split, data)
    if multiprocessing.get_start_method() != "fork":
        try:
            pickle.dumps(split.dataset)
        except Exception as error:  # whatever the user's objects raise
            told = complaint(error, file, (_unpicklable(split.dataset), *makers))
            return {"workers": f"its data set can't be sent to worker processes ({told})"}
    few = Subset(split.dataset, range(min(2, len(split))))
    batch: Tree = None
    with tempfile.TemporaryDirectory(prefix="laptime-") as folder:
        stack = Path(folder) / "stack"
        try:
            batch = split.batch(range(len(few)))
            ForkingPickler.dumps(batch)
            _one_batch(few, split, stack)
        except Exception as error:  # a worker's own errors come through as they were raised there
            if "timed out" in str(error):
                reason = (
                    f"it gave nothing for {PATIENCE_S} s{_where(stack, file, makers)}: a lock or a thread of before?"
                )
            else:
                reason = complaint(error, file, (_unsent(batch), split.collate, *makers))
            return {"workers": f"a worker process can't fetch its items: {reason}"}
    return {}


def _one_batch(few: Subset[Any], split: OwnSplit, stack: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        loader: DataLoader[Any] = DataLoader(
            few,
            batch_size=2,
            num_workers=1,
            collate_fn=split.collate,
            timeout=PATIENCE_S,
            worker_init_fn=partial(_tell_later, str(stack), max(1, PATIENCE_S - _BEFORE_S)),
        )
        next(iter(loader))


def _tell_later(path: str, seconds: float, _worker: int) -> None:
    """Has a worker write where it stands if it still does after some seconds, whatever lock it waits for."""
    _open.append(Path(path).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as the worker lives
    faulthandler.dump_traceback_later(seconds, file=_open[-1])


def _where(stack: Path, file: Path, makers: tuple[object, ...]) -> str:
    try:
        text = stack.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it never came to start
        text = ""
    return place_in(file, stack_in(text), makers)


def _makers(split: OwnSplit, data: OwnData) -> tuple[object, ...]:
    """Functions of the user's that made items and data sets."""
    return (*item_makers(split), data.workload.data)


def item_makers(split: OwnSplit) -> tuple[object, ...]:
    """What makes the items of a split: the methods of its data set, within whatever wraps it."""
    inner = split.dataset
    while hasattr(inner, "dataset"):  # torch's Subset, and wrappers after its example
        inner = inner.dataset
    return tuple(getattr(type(inner), name, None) for name in ("__getitem__", "__init__"))


def _unpicklable(dataset: object) -> object:
    """The first attribute of an object that can't be pickled; None where there is none."""
    for value in getattr(dataset, "__dict__", {}).values():
        try:
            pickle.dumps(value)
        except Exception:  # whatever the user's objects raise
            return value if hasattr(value, "__code__") else _unpicklable(value)
    return None


def _unsent(batch: Tree) -> object:
    """What of a batch can't be sent to another process; None where all can."""
    for leaf in leaves(batch):
        try:
            ForkingPickler.dumps(leaf)
        except Exception:  # whatever the user's objects raise
            return leaf
    return None
