"""A user's own training, opened: its file is imported, its data sets are taken as they are."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset, default_collate

from laptime.data.lightning_module import MODULE, LightningWorkload, of_lightning
from laptime.data.lightning_refused import is_lightning
from laptime.data.limits import check_limit
from laptime.draws import drawn, put_back_drawn, seed_all
from laptime.errors import LaptimeError, RunError, UsageError, shorten
from laptime.protocol import Workload
from laptime.spec import DataSpec
from laptime.trees import Tree, tensors
from laptime.user_code import complaint, place_in

_NEEDED = ("data", "model", "loss")
# An object, a class that makes it, a function that gives the class: more calls than that are a mistake.
_MOST_CALLS = 3
_SEED = 0


@dataclass(frozen=True)
class OwnSplit:
    """One part of a user's data.

    Attributes:
        dataset: map-style.
        collate: from a list of items to a batch.
    """

    dataset: Any
    collate: Callable[[list[Any]], Tree]

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Sequence[int]) -> Tree:
        """Reads items and puts them into a batch, in this process."""
        return self.collate([self.dataset[i] for i in indices])

    @cached_property
    def whole(self) -> Tree:
        """All items as one batch, read once."""
        return self.batch(range(len(self)))

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all items, by those of the first; what reading it draws is put back."""
        if not len(self):
            return 0
        kept = drawn()
        try:
            return len(self) * sum(t.nbytes for t in tensors(self.batch([0])))
        finally:
            put_back_drawn(kept)


@dataclass(frozen=True)
class OwnData:
    """A user's data, with the workload that it belongs to."""

    workload: Workload
    train: OwnSplit
    test: OwnSplit
    file: Path
    classes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the user's training is left out."""
        return self.workload.notes if isinstance(self.workload, LightningWorkload) else ()

    @property
    def batch_size(self) -> int:
        """The user's, in which evaluation goes through the test data."""
        return int(getattr(self.workload, "batch_size", 32))


@contextmanager
def told_with_line(doing: str, file: Path) -> Iterator[None]:
    """Tells errors of the user's code in one sentence with their line; raises RunError."""
    try:
        yield
    except LaptimeError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        raise RunError(f"{doing} failed: {complaint(error, file)}.") from error


def digest_of(file: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def load_workload(file: Path, attribute: str) -> Workload:
    """Imports a file and finds or makes the workload in it.

    Modules beside the file are found, as `python train.py` would find them. The module has the file's name, so that
    worker processes that are not forked can import it.

    Raises:
        UsageError: there is no such attribute, or what it is or makes is neither a LightningModule that can be
            followed nor has the methods of `laptime.Workload`.
        RunError: the user's code failed.
    """
    module = _imported(file)
    attribute, comma, data_name = attribute.partition(",")
    if not hasattr(module, attribute):
        mine = sorted(n for n, v in vars(module).items() if not n.startswith("_") and _made_in(v, module))
        hint = f"it defines {', '.join(mine[:8])}" if mine else "it defines nothing of its own"
        raise UsageError(f"{file.name} has no {shorten(attribute)!r} ({hint}): give {file.name}:NAME.")
    found = given = getattr(module, attribute)
    for _ in range(_MOST_CALLS):
        if isinstance(found, type) or not _is_made(found):
            with told_with_line(f"making the workload {attribute}", file):
                found = found()
    if is_lightning(found, MODULE):
        with told_with_line(f"setting {attribute} up", file):
            return of_lightning(given, data_name, module, file)
    if comma:
        raise UsageError(
            f"{attribute} of {file.name} is no LightningModule, so leave {shorten(comma + data_name)!r} out."
        )
    missing = [name for name in _NEEDED if not callable(getattr(found, name, None))]
    if missing:
        raise UsageError(
            f"{attribute} of {file.name} is no workload, since it has no {' and no '.join(f'{m}()' for m in missing)}: "
            "see laptime.Workload, or laptime new for a file that runs."
        )
    workload: Workload = found
    return workload


def _is_made(found: Any) -> bool:
    """Whether something is the workload itself, not what makes it; a module of torch's can be called too."""
    return hasattr(found, "loss") or is_lightning(found, MODULE) or not callable(found)


def _imported(file: Path) -> Any:
    name, folder = file.stem, str(file.parent)
    # As by `python train.py`: a parser of the user's finds no arguments of laptime's, in spawned loader workers either.
    sys.argv = [str(file)]
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) != str(file):
        raise UsageError(f"{file.name} has the name of another module ({name}) that is in use: rename the file.")
    if folder not in sys.path:  # where a spawned worker looks for it, though it is imported here already
        sys.path.insert(0, folder)
    if known is not None:
        return known
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise UsageError(f"{file.name} can't be imported: give a Python file.")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        with told_with_line(f"importing {file.name}", file):
            found.loader.exec_module(module)
    except RunError:
        del sys.modules[name]
        raise
    return module


def _made_in(value: object, module: Any) -> bool:
    return module.__name__ in (getattr(value, "__module__", None), type(value).__module__)


def open_own(file: Path, attribute: str, limits: tuple[int | None, int | None] = (None, None)) -> OwnData:
    """Opens a user's workload and its data.

    What the file draws is the same in every process and for every seed of a run: a split at random too.

    Args:
        file: the user's.
        attribute: its name for the workload.
        limits: how many training and test samples are kept; None for all.

    Raises:
        UsageError: it is no workload, its data are no two map-style data sets, or a limit is out of reach.
        RunError: the user's code failed.
    """
    seed_all(_SEED)
    workload = load_workload(file, attribute)
    seed_all(_SEED)  # again, since a file that was imported before draws nothing
    with told_with_line("data()", file):
        given = workload.data()
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise UsageError(
                f"data() of {file.name} gave {type(given).__name__}{place_in(file, (), (workload.data,))}: return two "
                "data sets, to train and to test."
            )
        collate = getattr(workload, "collate_fn", None) or default_collate
        splits = []
        for name, dataset, limit in zip(("train", "test"), given, limits, strict=True):
            _check_mapped(name, dataset, (file, place_in(file, (), (workload.data,))))
            splits.append(OwnSplit(limited(dataset, name, limit), collate))
    return OwnData(workload, splits[0], splits[1], file)


def _check_mapped(name: str, dataset: Any, made: tuple[Path, str]) -> None:
    """Raises UsageError for what is no data set with samples; `made` is the file and where in it the data come from."""
    file, place = made
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UsageError(
            f"the {name} data of {file.name} are a {type(dataset).__name__} without __len__ and __getitem__{place}: "
            "give a map-style data set, as torch.utils.data.Dataset is."
        )
    if not len(dataset):
        raise UsageError(f"the {name} data of {file.name} are empty{place}: give at least one sample.")


def limited(dataset: Any, name: str, limit: int | None) -> Any:
    """The samples that a limit keeps: a smaller limit's are among a larger one's; raises UsageError."""
    count = len(dataset)
    check_limit(name, count, limit)
    if limit is None or limit == count:
        return dataset
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return Subset(dataset, order[:limit].tolist())


def open_run(data: DataSpec, limit_train: int | None, limit_test: int | None) -> OwnData:
    """Opens the data of a spec; raises what `open_own` does, and RunError where the file was changed meanwhile."""
    assert data.own is not None
    file = Path(data.path)
    if not file.is_file():
        raise UsageError(f"the file {shorten(str(file))!r} of the workload {data.own.name!r} is gone: put it back.")
    if data.own.file and digest_of(file) != data.own.file:
        raise RunError(
            f"{file.name} was changed after this run was planned: start anew, so that all variants train alike."
        )
    return open_own(file, data.own.attribute, (limit_train, limit_test))
