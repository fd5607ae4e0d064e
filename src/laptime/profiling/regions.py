"""Named regions of a step, made of the same marks that the timers take."""

from __future__ import annotations

from torch.profiler import record_function


class RegionMarks:
    """Opens a region named after a part where the part before it ends, and closes it at the part's own mark.

    A mark is called at the end of its part, but a region needs its name at its beginning. The order of the marks is
    that of the shortest step so far; until there was one, no region is opened. The first step of an epoch may have
    marks that others lack (workers that start): such a part lies in the region that was expected there.
    """

    def __init__(self) -> None:
        self.order: tuple[str, ...] = ()
        self._seen: list[str] = []
        self._place = 0
        self._open: record_function | None = None

    def begin_step(self) -> None:
        """Opens the region of the step's first part."""
        self._seen, self._place = [], 0
        self._enter()

    def __call__(self, part: str) -> None:
        """Ends a part; the next one of the order begins."""
        self._exit()
        self._seen.append(part)
        if part in self.order[self._place :]:
            self._place = self.order.index(part, self._place) + 1
        self._enter()

    def end_step(self) -> None:
        """Closes what is open: what follows the last mark belongs to no region."""
        self._exit()
        if not self.order or len(self._seen) < len(self.order):
            self.order = tuple(self._seen)

    def _enter(self) -> None:
        if self._place < len(self.order):
            self._open = record_function(self.order[self._place])
            self._open.__enter__()

    def _exit(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
