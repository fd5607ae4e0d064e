"""Worker processes that fetch a user's items: whether they can, and the line of the user's code that is in the way."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any
from weakref import WeakSet

from torch.utils.data import DataLoader, Dataset, Subset

from laptime.data.own.alike import others_there
from laptime.data.own.begun import Begin, begun, own_dataset, worker_start
from laptime.data.own.opened import OwnData, OwnSplit
from laptime.errors import RunError
from laptime.host.output import say_error
from laptime.host.processes import Terminated, death
from laptime.host.stacks import dies_of
from laptime.own.items import note_item
from laptime.own.user_code import complaint, crash_place, place_in, raised_by_hand, stack_in
from laptime.values.draws import fetched
from laptime.values.trees import Tree, leaves

PATIENCE_S = 20
# Where torch puts items together.
_COLLATE = str(Path("utils", "data", "_utils", "collate.py"))
# What torch says of one that has died.
_LOST = re.compile(r"DataLoader worker \(pid.*\) (is killed by signal|exited unexpectedly)")
_SCHEDULE = str(Path("torch", "optim", "lr_scheduler"))
# A worker that is asked where it stands writes it within so long, or not at all.
_ANSWER_S = 0.5
# See `end_connection`.
_CUT_OFF = "; a worker is cut off from what was connected before it began, so let its first item connect"
_ELSEWHERE = (
    "its items are others in a worker process than in this one, though torch, random and np.random draw nothing for "
    "them: by the worker's number or seed, perhaps"
)
# What a worker answers through, open for as long as it lives.
_open: list[Connection] = []


def refused_workers(data: OwnData) -> dict[str, str]:
    """Why worker processes can't fetch the training items: two are started, and each is asked for the same batch."""
    split, file = data.train, data.file
    makers = _makers(data)
    if worker_start() != "fork":
        try:
            pickle.dumps(split.dataset)
        except Exception as error:  # whatever the user's objects raise
            told = complaint(error, file, (_unpicklable(split.dataset), *makers))
            return {"workers": f"its data set can't be sent to worker processes ({told})"}
    few = Subset(split.dataset, range(min(2, len(split))))
    batch: Tree = None
    watch = Watch(data, PATIENCE_S)
    try:
        batch = split.batch(range(len(few)))
        ForkingPickler.dumps(batch)
        if others_there(split, _batches(few, split, watch)):
            return {"workers": _ELSEWHERE + place_in(file, (), (split.collate, *makers))}
    except Exception as error:  # a worker's own errors come through as they were raised there
        if _silent(error):
            reason = f"it {watch.silence()}"
        elif how := fallen(error):
            reason = f"it {how}"
        else:
            reason = complaint(error, file, (_unsent(batch), split.collate, *makers))
            reason += _CUT_OFF if isinstance(error, ConnectionError) else ""
        return {"workers": f"a worker process can't fetch its items: {reason}"}
    return {}


def _batches(few: Subset[Any], split: OwnSplit, watch: Watch) -> list[Tree]:
    """A batch of the same items from each of two workers."""
    with warnings.catch_warnings(), watch.over_started():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        loader: DataLoader[Any] = DataLoader(
            few,
            batch_sampler=[list(range(len(few)))] * 2,
            num_workers=2,
            multiprocessing_context=worker_start(),
            collate_fn=split.collate,
            timeout=PATIENCE_S,
            worker_init_fn=watch.init,
        )
        batches = iter(loader)
    return list(batches)


class Watch:
    """Workers that say where they stand when they are asked, whatever lock they wait for.

    Each answers a signal with its stack, by a handler in C that needs no turn of Python's; nothing is done before. So
    does one that dies, of SIGSEGV say.

    Args:
        data: whose items they fetch.
        patience_s: after which their loader gives them up.
    """

    def __init__(self, data: OwnData, patience_s: int) -> None:
        self.data, self.patience_s = data, patience_s
        self._hears, self._says = multiprocessing.Pipe(duplex=False)
        self._workers: list[BaseProcess] = []
        _watches.add(self)

    @property
    def init(self) -> Callable[[int], None]:
        """For DataLoader's `worker_init_fn`."""
        train = self.data.train
        return partial(_answering, self._says, partial(begun, train.begin, own_dataset(train.dataset)))

    @contextmanager
    def over_started(self) -> Iterator[None]:
        """Takes the processes that start within it for workers."""
        before = multiprocessing.active_children()
        yield
        self._workers += [p for p in multiprocessing.active_children() if p not in before]

    def told(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Passes batches on; raises RunError with the line where workers stand that gave none in time."""
        try:
            yield from batches
        except RuntimeError as error:
            if not _silent(error):
                raise
            raise RunError(
                f"a loader worker of {self.data.file.name} {self.silence()} Leave workers out of this variant."
            ) from error

    def silence(self) -> str:
        """What is said of workers that gave nothing, with the user's line."""
        living = [worker.pid for worker in self._workers if worker.is_alive() and worker.pid is not None]
        if any(dies_of(pid, signal.SIGUSR1) for pid in living):
            return f"had not begun within {self.patience_s} s: is much imported, which each spawned process does anew?"
        text = "".join(map(self._stack_of, self._workers))
        place = place_in(self.data.file, stack_in(text), _makers(self.data))
        return f"gave nothing for {self.patience_s} s{place}: a lock or a thread of before?"

    def _stack_of(self, worker: BaseProcess) -> str:
        if worker.pid is None or not worker.is_alive():
            return ""
        os.kill(worker.pid, signal.SIGUSR1)
        return self._heard(_ANSWER_S)

    def _heard(self, patience_s: float) -> str:
        parts = []
        while self._hears.poll(patience_s):
            parts.append(os.read(self._hears.fileno(), 1 << 16))
        return b"".join(parts).decode(errors="replace")

    def fallen(self) -> str:
        """How one of them has died, with the user's line where it stood; empty where none has."""
        wait([worker.sentinel for worker in self._workers], _ANSWER_S)  # its end of a socket is seen before its own
        code = next((worker.exitcode for worker in self._workers if worker.exitcode), 0)
        if not code:
            return ""
        text = self._heard(0.0)
        say_error(text)  # the whole stack, for the log
        file = self.data.file
        return f"{death(code)}{crash_place(text, file) or place_in(file, (), _makers(self.data))}"


_watches = WeakSet[Watch]()


def fallen(error: BaseException) -> str:
    """How a loader worker has died, see `Watch.fallen`, where an error tells of that; empty where it does not.

    torch raises it wherever the process stands that hears of it, in a line that has nothing to do with it perhaps.
    """
    if not (isinstance(error, ConnectionError | EOFError) or _LOST.search(str(error))):
        return ""
    return next(filter(None, (watch.fallen() for watch in _watches)), "")


def _answering(says: Connection, begin: Begin, worker: int) -> None:
    _open.append(says)
    faulthandler.register(signal.SIGUSR1, file=says.fileno())
    # torch has put handlers of its own over those that this process began with. One thread fits into a pipe.
    faulthandler.disable()
    faulthandler.enable(file=says.fileno(), all_threads=False)
    with _staying():
        begin(worker)


@contextmanager
def _staying() -> Iterator[None]:
    """Within it sys.exit() and a KeyboardInterrupt by hand are errors with their line, not the end of a worker."""
    try:
        yield
    except Terminated:
        raise
    except SystemExit as left:
        raise RuntimeError(f"sys.exit({left.code!r}) was called") from left
    except KeyboardInterrupt as stop:
        if not raised_by_hand(stop):
            raise
        raise RuntimeError("KeyboardInterrupt was raised") from stop


def _silent(error: Exception) -> bool:
    """Whether an error is that of a DataLoader whose workers gave nothing in time."""
    return "DataLoader timed out" in str(error)


class Staying(Dataset[Any]):
    """A data set for workers: an item that calls sys.exit() is an error with its line, not the end of a worker, and
    errors tell their item.
    """

    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitems__(self, indices: list[int]) -> Any:
        """The items of some indices."""
        try:
            with _staying():
                return fetched(self.items, indices)
        except Exception as error:
            note_item(error)
            raise


def _makers(data: OwnData) -> tuple[object, ...]:
    """Functions of the user's that made training items and data sets, and what workers begin with."""
    return (*item_makers(data.train), data.workload.data, data.train.begin)


def makers_behind(data: OwnData, error: BaseException) -> tuple[object, ...]:
    """Functions of the user's that made the items of a batch that torch failed to put together, or the schedule that
    fails after some steps, fewer than it was made for perhaps; none otherwise.
    """
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    if any(_SCHEDULE in name for name in frames):
        return (getattr(data.workload, "configuring", None) or getattr(data.workload, "schedule", None),)
    if not any(_COLLATE in name for name in (*frames, str(error))):  # a loader worker tells its frames as text
        return ()
    return (*item_makers(data.train), *item_makers(data.test), data.workload.data)


def item_makers(split: OwnSplit) -> tuple[object, ...]:
    """What makes the items of a split: the methods of its data set, within whatever wraps it."""
    kind = type(inner(split))
    return tuple(getattr(kind, name, None) for name in ("__getitem__", "__getitems__", "__init__"))


def read_together(split: OwnSplit) -> bool:
    """Whether its data set reads the items of a batch at once, as DataLoader has those that have `__getitems__`."""
    return hasattr(inner(split), "__getitems__")


def inner(split: OwnSplit) -> Any:
    """Its data set within whatever wraps it."""
    found = split.dataset
    while hasattr(found, "dataset"):  # torch's Subset, and wrappers after its example
        found = found.dataset
    return found


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
