"""Rows of a trace, in order of time: in memory while they are few, in a temporary file where they are many."""

from __future__ import annotations

import sqlite3
import tempfile
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from laptime.errors import DataError
from laptime.trace.events import Event

# Rows in memory take about 200 bytes each; a trace has one for each 400 to 1000 bytes.
IN_MEMORY = 200_000
_COLUMNS = ", ".join(Event._fields)
_INSERT = f"INSERT INTO rows VALUES ({', '.join('?' * len(Event._fields))})"  # noqa: S608  # no value from outside
_BETWEEN = f"SELECT {_COLUMNS} FROM rows WHERE begin >= ? AND begin < ? ORDER BY begin, dur DESC"  # noqa: S608


class Store:
    """Takes rows in any order and gives back those of a stretch of time.

    Above `limit` rows they move to an SQLite file, whose index does the sorting; what stays in memory does not grow
    with the trace any more.
    """

    def __init__(self, limit: int = IN_MEMORY) -> None:
        self._limit = limit
        self._rows: list[Event] = []
        self._strings: dict[str, str] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._file: sqlite3.Connection | None = None

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, row: Event) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._limit:
            self._spill()

    def close(self) -> None:
        """Ends adding; from here on rows can be asked for."""
        if self._file is None:
            self._rows.sort(key=lambda e: (e.begin, -e.dur))
            return
        self._spill()
        self._asked("CREATE INDEX by_time ON rows (begin, dur DESC)")

    def drop(self, lanes: Collection[str]) -> None:
        """Forgets the rows of some threads or streams; after `close`."""
        if self._file is None:
            self._rows = [row for row in self._rows if row.lane not in lanes]
            return
        for lane in lanes:
            self._asked("DELETE FROM rows WHERE lane = ?", (lane,))

    def between(self, begin: float, end: float) -> list[Event]:
        """Rows that begin in [begin, end), by time; of equal beginnings the longest first."""
        if self._file is None:
            start = bisect_left(self._rows, begin, key=attrgetter("begin"))
            return self._rows[start : bisect_left(self._rows, end, key=attrgetter("begin"))]
        return list(self._shared(self._asked(_BETWEEN, (begin, end))))

    def since(self, begin: float) -> Iterator[Event]:
        """Yields the rows that begin at a moment or later, in the same order."""
        if self._file is None:
            yield from self._rows[bisect_left(self._rows, begin, key=attrgetter("begin")) :]
        else:
            yield from self._shared(self._asked(_BETWEEN, (begin, float("inf"))))

    def _shared(self, found: Iterable[Any]) -> Iterator[Event]:
        """Rows out of the file, whose strings are held once."""
        share = self._strings.setdefault
        for b, d, kind, lane, external, correlation, name, shapes, dtype, window, size, sequence in found:
            yield Event(
                *(b, d, kind, share(lane, lane), external, correlation),
                *(share(name, name), share(shapes, shapes), share(dtype, dtype), share(window, window)),
                *(size, sequence),
            )

    def _spill(self) -> None:
        if self._file is None:
            self._folder = tempfile.TemporaryDirectory(prefix="laptime-trace-")
            self._file = sqlite3.connect(Path(self._folder.name) / "rows.db", isolation_level=None)
            self._asked("PRAGMA journal_mode = OFF")
            self._asked("PRAGMA synchronous = OFF")
            self._asked(f"CREATE TABLE rows ({_COLUMNS})")
        self._asked("BEGIN")
        try:
            self._file.executemany(_INSERT, self._rows)
        except sqlite3.OperationalError as error:
            raise _no_room(error) from error
        self._asked("COMMIT")
        self._rows.clear()

    def _asked(self, statement: str, values: tuple[float | str, ...] = ()) -> sqlite3.Cursor:
        if self._file is None:
            raise RuntimeError("no rows were written to a file")
        try:
            return self._file.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise _no_room(error) from error


def _no_room(error: Exception) -> DataError:
    return DataError(
        f"so long a trace is sorted in {tempfile.gettempdir()}, which failed ({error}): make room or set TMPDIR."
    )
