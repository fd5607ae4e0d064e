"""What draws random numbers without a generator of its own, a user's code above all: seeded, kept and put back.

Three generators of a process are meant: torch's for the CPU, that of `random`, and numpy's legacy one (`np.random.rand`
and the like).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

State = dict[str, Any]


def seed_all(seed: int) -> None:
    """Seeds torch on all devices, `random` and numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def draw_apart(seed: int, epoch: int, rank: int) -> None:
    """Gives each rank but the first draws of its own for an epoch: alike, all would drop the same units out.

    They follow from seed, epoch and rank, so that a run that goes on from a checkpoint of the first rank draws them
    again. The first goes on as one process does.
    """
    if rank:
        seed_all(int(np.random.SeedSequence((seed % 2**64, epoch, rank)).generate_state(1)[0]))


def drawn() -> State:
    """Where the process's generators are: tensors and plain values, so that nothing need be unpickled."""
    _, keys, place, has_gauss, gauss = np.random.get_state()  # legacy generator: what libraries draw from
    return {
        "cpu": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": {
            "keys": torch.tensor([int(key) for key in keys]),
            "place": int(place),
            "has_gauss": int(has_gauss),
            "gauss": float(gauss),
        },
    }


def have_drawn(before: State) -> bool:
    """Whether a generator of the process has moved since."""
    return bool(moved(before, drawn()))


def moved(before: State, after: State) -> set[str]:
    """Which generators are elsewhere: `torch`, `random`, `np.random`."""
    then, now = _moving(before), _moving(after)
    return {name for name in then if not all(map(torch.equal, then[name], now[name]))}


def _moving(state: State) -> dict[str, list[torch.Tensor]]:
    """Where the process's generators are, as tensors."""
    numbers = state["numpy"]
    return {
        "torch": [state["cpu"]],
        "random": [torch.tensor(state["python"][1])],
        "np.random": [numbers["keys"], torch.tensor(numbers["place"])],
    }


def seeded_by(call: Callable[[], object]) -> set[str]:
    """Which generators are seeded by what is called: they end at one place, wherever they began."""
    begun = drawn()
    try:
        call()
        once = drawn()
        put_back_drawn(begun)
        move_on()
        call()
        return set(_moving(begun)) - moved(once, drawn())
    finally:
        put_back_drawn(begun)


def move_on() -> None:
    """Draws a number from each generator, so that what seeds one is seen to."""
    torch.rand(1), random.random(), np.random.rand()  # noqa: S311  (nobody uses them)


def put_back_drawn(state: State) -> None:
    """Puts the generators where they were; a state of an earlier laptime holds torch's alone."""
    torch.set_rng_state(state["cpu"])
    if "python" in state:
        random.setstate(state["python"])
        found = state["numpy"]
        keys = found["keys"].numpy().astype(np.uint32)
        np.random.set_state(("MT19937", keys, found["place"], found["has_gauss"], found["gauss"]))


def fetched(dataset: Any, indices: Sequence[int]) -> Any:
    """Items of a data set as DataLoader reads a batch of them: at once where it has `__getitems__`, else one by one.

    Returns:
        A list of the items, or whatever `__getitems__` gives in its place, a batch that is ready say.

    Raises:
        RuntimeError: reading one raised StopIteration, which would pass for the end of an epoch.
    """
    many = getattr(dataset, "__getitems__", None)
    try:
        return many(list(indices)) if many else [dataset[index] for index in indices]
    except StopIteration as ended:
        raise RuntimeError("StopIteration was raised, as by next() of what has come to its end") from ended


class Read(Dataset[Any]):
    """A data set whose items are read by `fetched`."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitems__(self, indices: list[int]) -> Any:
        """The items of some indices."""
        return fetched(self.items, indices)


class SeededItems(Dataset[Any]):
    """A data set for loader workers: what a batch draws follows from seed, epoch, rank and its place in the epoch.

    Workers live as long as the run, and their generators would go on with it, the warm-up's draws behind them: an epoch
    would draw other numbers after a restart. Costs a worker about 20 microseconds a batch.
    """

    def __init__(self, items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitems__(self, batch: tuple[Sequence[int], list[int]]) -> Any:
        """The items of a batch, which is given as what seeds it and indices."""
        key, indices = batch
        words = [int(word) for word in np.random.SeedSequence(key).generate_state(3)]
        torch.default_generator.manual_seed(words[0])  # torch.manual_seed keeps a traceback each time
        random.seed(words[1])
        np.random.seed(words[2])
        return fetched(self.items, indices)
