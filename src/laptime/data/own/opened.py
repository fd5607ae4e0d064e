"""A user's own training, opened: its file is imported, its data sets are taken as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from laptime.data.lightning.found import of_lightning
from laptime.data.lightning.module import MODULE, LightningWorkload
from laptime.data.lightning.refused import is_lightning
from laptime.data.limits import check_limit
from laptime.data.own.begun import Begin, Limited, worker_begin
from laptime.data.own.importing import belonging, digest_of, imported, refuse_arguments, told_with_line
from laptime.data.own.mapped import check_mapped
from laptime.data.own.trains import refuse_returning_nothing
from laptime.data.own.weights import limit_order, sample_weights
from laptime.errors import RunError, UsageError, shorten
from laptime.own.protocol import Workload
from laptime.own.user_code import place_in
from laptime.spec import DataSpec
from laptime.values.draws import drawn, fetched, put_back_drawn, seed_all
from laptime.values.tallies import Numbers, globals_of, numbers_of
from laptime.values.trees import Tree, mapped, samples, sent, stored, tensors

_NEEDED = ("data", "model", "loss")
# An object, a class that makes it, a function that gives the class: more calls than that are a mistake.
_MOST_CALLS = 3
_SEED = 0
# Bytes of items that are read at a time where all are kept.
_AT_ONCE = 2**28
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class OwnSplit:
    """One part of a user's data.

    Attributes:
        dataset: map-style.
        collate: from a list of items to a batch.
        weights: by which an epoch draws as many of them as there are [n]; None where it has each once.
        begin: what each loader worker calls first, with its number; None for nothing.
    """

    dataset: Any
    collate: Callable[[list[Any]], Tree]
    weights: Tensor | None = None
    begin: Begin | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Sequence[int]) -> Tree:
        """Reads items and puts them into a batch, in this process."""
        return self.collate(fetched(self.dataset, indices))

    def few(self, index: int) -> Tree:
        """A batch of one item, or, where the collate_fn makes none of one alone, of that and one beside it."""
        try:
            return self.batch([index])
        except Exception:  # whatever a user's code raises; with more items it is raised again
            return self.batch([index, index - 1 if index else len(self) - 1])

    def whole(self, device: torch.device = _CPU, layout: torch.memory_format = torch.contiguous_format) -> Tree:
        """All items as one batch on a device, images in a layout; read once, since a run's check wants them, too.

        Raises:
            ValueError: it has another number of samples. No error of a kind that ends a ladder: resident alone fails.
        """
        place = (device, layout)
        if place not in self._wholes:
            whole = self._read(lambda some: sent(some, device, layout))
            if samples(whole) != len(self):  # an index would take another item's sample
                raise ValueError(
                    f"collate_fn made {samples(whole)} samples of {len(self)} items, so none can be found by its item: "
                    "leave resident out, or leave those that it drops out of data()."
                )
            self._wholes[place] = whole
        return self._wholes[place]

    def _read(self, placed: Callable[[Tree], Tree]) -> Tree:
        """Reads some items at a time and brings them to their place, so that little stands beside what is kept."""
        parts = max(1, min(len(self) // 2, -(-self.nbytes // _AT_ONCE)))
        ends = [len(self) * n // parts for n in range(parts + 1)]
        some = placed(self.batch(range(ends[1])))
        if parts == 1:
            return some
        kept = mapped(some, lambda tensor: _room_for(len(self), tensor))
        for start, end in pairwise(ends):
            some = placed(self.batch(range(start, end))) if start else some
            if not _fill(kept, (start, end), some):  # items of several forms: what the collate_fn makes of all of them
                return placed(self.batch(range(len(self))))
        return kept

    @cached_property
    def _wholes(self) -> dict[tuple[torch.device, torch.memory_format], Tree]:
        return {}

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all items, by those of the first; what reading it draws is put back."""
        if not len(self):
            return 0
        kept = drawn()
        try:
            few = self.few(0)
            return len(self) * sum(part.nbytes for t in tensors(few) for part in stored(t)) // max(1, samples(few))
        finally:
            put_back_drawn(kept)


def _room_for(count: int, like: Tensor) -> Tensor:
    """An empty tensor of `count` samples, with all else as in a batch of some of them."""
    shape, last = (count, *like.shape[1:]), torch.channels_last
    layout = last if like.dim() == 4 and like.is_contiguous(memory_format=last) else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)


def _fill(kept: Tree, place: tuple[int, int], some: Tree) -> bool:
    """Copies some samples to their place among all; whether they have the form of all."""
    sides = list(zip(tensors(kept), tensors(some), strict=False))
    alike = len(tensors(kept)) == len(tensors(some)) and all(
        len(to[slice(*place)]) == len(of) and (to.shape[1:], to.dtype) == (of.shape[1:], of.dtype) for to, of in sides
    )
    for to, of in sides if alike else ():
        to[slice(*place)] = of
    return alike


@dataclass(frozen=True)
class OwnData:
    """A user's data, with the workload that it belongs to, and what this and globals count before any step."""

    workload: Workload
    train: OwnSplit
    test: OwnSplit
    file: Path
    classes: tuple[str, ...] = ()
    numbers: Numbers = field(default_factory=list)
    globals: Numbers = field(default_factory=list)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the user's training is left out."""
        return self.workload.notes if isinstance(self.workload, LightningWorkload) else ()

    @property
    def batch_size(self) -> int:
        """The user's."""
        return int(getattr(self.workload, "batch_size", 32))

    @property
    def micro_batch(self) -> int | None:
        """Samples that the user lets through the net at once, at most; None for all of a batch."""
        return getattr(self.workload, "micro_batch_size", None)

    @property
    def evaluation_batch(self) -> int:
        """In which evaluation goes through the test data: what goes through the net at once in training."""
        return min(self.batch_size, self.micro_batch or self.batch_size)


def load_workload(file: Path, attribute: str) -> Workload:
    """Imports a file and finds or makes the workload in it.

    Modules beside the file are found, as `python train.py` would find them. The module has the file's name, so that
    worker processes that are not forked can import it.

    Raises:
        UsageError: there is no such attribute, or what it is or makes is neither a LightningModule that can be
            followed nor has the methods of `laptime.Workload`.
        RunError: the user's code failed.
    """
    module = imported(file)
    attribute, comma, data_name = attribute.partition(",")
    if not hasattr(module, attribute):
        mine = sorted(n for n, v in vars(module).items() if not n.startswith("_") and _made_in(v, module))
        hint = f"it defines {', '.join(mine[:8])}" if mine else "it defines nothing of its own"
        raise UsageError(f"{file.name} has no {shorten(attribute)!r} ({hint}): give {file.name}:NAME.")
    found = given = getattr(module, attribute)
    for _ in range(_MOST_CALLS):
        if isinstance(found, type) or not _is_made(found):
            refuse_returning_nothing(found, file)
            refuse_arguments(found, file)
            with told_with_line(f"making the workload {attribute}", file, getattr(found, "__init__", None), found):
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
        what = "a net and no" if isinstance(found, nn.Module) else "no"
        raise UsageError(
            f"{attribute} of {file.name} is {what} workload, since it has no "
            f"{' and no '.join(f'{m}()' for m in missing)}: see laptime.Workload, or laptime new for a file that runs."
        )
    workload: Workload = found
    return workload


def _is_made(found: Any) -> bool:
    """Whether something is the workload itself, not what makes it; a net, which is none, can be called too."""
    return hasattr(found, "loss") or isinstance(found, nn.Module) or not callable(found)


def _made_in(value: object, module: Any) -> bool:
    return module.__name__ in (getattr(value, "__module__", None), type(value).__module__)


def open_own(
    file: Path, attribute: str, limits: tuple[int | None, int | None] = (None, None), epochs: int = 1
) -> OwnData:
    """Opens a user's workload and its data.

    What the file draws is the same in every process and for every seed of a run: a split at random too.

    Args:
        file: the user's.
        attribute: its name for the workload.
        limits: how many training and test samples are kept; None for all.
        epochs: how many are trained, which a LightningModule may ask its Trainer for.

    Raises:
        UsageError: it is no workload, its data are no two map-style data sets, or a limit is out of reach.
        RunError: the user's code failed.
    """
    seed_all(_SEED)
    workload = load_workload(file, attribute)
    module = workload if isinstance(workload, LightningWorkload) else None
    if module:
        module.lasting(epochs, limits[0])
    seed_all(_SEED)  # again, since a file that was imported before draws nothing
    with told_with_line("data()", file, workload.data):
        given = workload.data()
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise UsageError(
                f"data() of {file.name} gave {type(given).__name__}{place_in(file, (), (workload.data,))}: return two "
                "data sets, to train and to test."
            )
        collate = getattr(workload, "collate_fn", None) or default_collate
        test_collate = getattr(workload, "test_collate_fn", None) or collate
        for name, dataset in zip(("train", "test"), given, strict=True):
            check_mapped(name, dataset, (file, place_in(file, (), (workload.data,))))
    train = OwnSplit(given[0], collate, sample_weights(workload, given[0], file), worker_begin(workload, file))
    train, test = _kept("train", train, limits[0]), _kept("test", OwnSplit(given[1], test_collate), limits[1])
    if module:
        with told_with_line("configure_optimizers()", file):
            module.configure()
    return OwnData(workload, train, test, file, numbers=numbers_of(workload), globals=globals_of(workload))


def _kept(name: str, whole: OwnSplit, limit: int | None) -> OwnSplit:
    """The samples that a limit keeps, with their weights: a smaller limit's are among a larger one's; or UsageError."""
    check_limit(name, len(whole), limit)
    if limit in (None, len(whole)):
        return whole
    chosen = limit_order(len(whole))[:limit]
    weights = None if whole.weights is None else whole.weights[chosen]
    return replace(whole, dataset=Limited(whole.dataset, chosen.tolist()), weights=weights)


def open_run(data: DataSpec, limit_train: int | None, limit_test: int | None, epochs: int) -> OwnData:
    """Opens the data of a spec; raises what `open_own` does, and RunError where the file was changed meanwhile."""
    assert data.own is not None
    file = Path(data.path)
    if not file.is_file():
        raise UsageError(f"the file {shorten(str(file))!r} of the workload {data.own.name!r} is gone: put it back.")
    if data.own.file and digest_of(file, data.own.beside) != data.own.file:
        raise RunError(
            f"{file.name}{belonging(data.own.beside)} was changed after this run was planned: start anew, so that all "
            "variants train alike."
        )
    return open_own(file, data.own.attribute, (limit_train, limit_test), epochs)
