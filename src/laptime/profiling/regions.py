"""Named regions of a step, made of the same marks that the timers take."""

from __future__ import annotations

from enum import Enum

from torch.profiler import record_function

from laptime.measure.marks import WORKERS


class Kind(Enum):
    """Steps of one kind have the same marks: where copies run ahead, the first copies twice and the last not at all."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"

    @classmethod
    def of(cls, place: int, steps: int) -> Kind:
        """The kind of a step by its place, from 0, in an epoch of so many steps."""
        if place == 0:
            return cls.FIRST
        return cls.LAST if place == steps - 1 else cls.MIDDLE


class RegionMarks:
    """Opens a region named after a part where the part before it ends, and closes it at the part's own mark.

    A mark is called at the end of its part, but a region needs its name at its beginning. So the first step of each
    kind teaches the order of its marks and has no regions. Workers that start lie in the region expected there.
    """

    def __init__(self) -> None:
        self.orders: dict[Kind, tuple[str, ...]] = {}
        self._kind = Kind.FIRST
        self._seen: list[str] = []
        self._place = 0
        self._open: record_function | None = None

    @property
    def order(self) -> tuple[str, ...]:
        """The parts of a step like the one that runs; empty where there was none yet."""
        return self.orders.get(self._kind, ())

    def begin_step(self, kind: Kind) -> None:
        """Opens the region of the step's first part."""
        self._kind, self._seen, self._place = kind, [], 0
        self._enter()

    def __call__(self, part: str) -> None:
        """Ends a part; the next one of the order begins."""
        self._exit()
        if part != WORKERS:
            self._seen.append(part)
        if part in self.order[self._place :]:
            self._place = self.order.index(part, self._place) + 1
        self._enter()

    def end_step(self) -> None:
        """Closes what is open: what follows the last mark belongs to no region."""
        self._exit()
        self.orders.setdefault(self._kind, tuple(self._seen))

    def _enter(self) -> None:
        if self._place < len(self.order):
            self._open = record_function(self.order[self._place])
            self._open.__enter__()

    def _exit(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
