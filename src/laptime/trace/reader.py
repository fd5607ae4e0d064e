"""The events of a Chrome trace as a stream: a few are decoded at a time, so the file's size does not matter.

torch writes `{"schemaVersion": ..., "traceEvents": [...], "traceName": ...}`, with what it knows of the recording in
keys before and after the events; other tools write a bare list.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pydantic_core import from_json

from laptime.errors import DataError, in_words, shorten

CHUNK = 1 << 20
# Text that is decoded at once, up to the next end of an event: some twenty events. With more it is slower again.
BATCH = 1 << 13
# No value of a trace comes near: what can't be decoded within this much text is not JSON.
LONGEST_VALUE = 32 << 20
# Longer than any word or number of JSON, which the end of a chunk may cut.
_LONGEST_WORD = 64
RECORD_IT = (
    "record it with torch.profiler.profile(schedule=torch.profiler.schedule(..., repeat=1)), prof.step() after each "
    "step and export_chrome_trace"
)
READING = "reading"

Told = Callable[[str, float], None]
"""Called now and then with what is done, and how much of it, from 0 to 1."""
_BETWEEN = re.compile(r"[ \t\r\n,]*")
# Where an event ends and another begins; in a string or a list within an event it may look like that, too.
_BORDER = re.compile(r"\}(?=[ \t\r\n]*,[ \t\r\n]*\{)")
# What Windows' paths may hold where whoever wrote them did not escape their backslashes, as torch once did not.
# One that ends the text so far may go on behind it.
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\(?=(?s:.{5}))')
_LAST_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_PACKED = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
}
_TAR = (257, b"ustar")
_FOREIGN = {
    b"SQLite format 3": "an SQLite file, as nsys exports",
    b"\x80\x04": "a Python pickle (a memory snapshot?)",
    b"NSYS": "an nsys report",
    b"\x0a": "no text (a Perfetto or nsys trace?)",
}


def untold(what: str, share: float) -> None:
    """For those who show no progress."""


@dataclass
class TraceFile:
    """A trace while it is read.

    Attributes:
        told: hears how much of the file has been read.
        meta: the keys around the events.
        events: how many were read.
        mib: MiB of text that was read.
    """

    path: Path
    told: Told = untold
    meta: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    chars: int = 0

    @property
    def mib(self) -> float:
        return self.chars / (1 << 20)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yields the events one after another.

        Raises:
            DataError: the file can't be read, is no JSON, no trace, or ends in the middle.
        """
        try:
            with _raw(self.path) as raw, _unpacked(raw) as stream:
                self._look(stream)
                size = max(1, self.path.stat().st_size)
                # A name may hold bytes that are no UTF-8; a sign in its place does no harm.
                with io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="") as text:
                    yield from _Scanner(self, text, lambda: self.told(READING, raw.tell() / size)).events()
        except EOFError as error:
            raise self.cut_off() from error
        except (zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"the trace {self._name} is a damaged gzip file ({error}): copy it anew.") from error
        except OSError as error:
            raise DataError(in_words(error)) from error

    def _look(self, stream: IO[bytes]) -> None:
        """Refuses what its first bytes tell to be another thing."""
        head = stream.read(512)
        if not head:
            raise DataError(f"the trace {self._name} is empty: {RECORD_IT}.")
        stream.seek(0)
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if start in (b"{", b"["):
            return
        packed = next((what for magic, what in _PACKED.items() if head.startswith(magic)), "")
        if head.startswith(_TAR[1], _TAR[0]):
            packed = "a tar archive"
        if packed:
            raise DataError(
                f"{self._name} is {packed}: unpack it and give the trace that is in it (.json, or packed by gzip)."
            )
        foreign = (what for magic, what in _FOREIGN.items() if head.startswith(magic))
        raise self.no_trace(next(foreign, "something that is not JSON"))

    def cut_off(self) -> DataError:
        return DataError(
            f"the trace {self._name} is cut off after {self.events} events ({self.mib:.1f} MiB of text): the recording "
            "died or the copy is not whole; copy it again, or record again and let export_chrome_trace finish."
        )

    def broken(self) -> DataError:
        if self.events == 0 and not self.meta:
            return self.no_trace("something that is not JSON")
        return DataError(
            f"the trace {self._name} is broken JSON after event {self.events}, within its first {self.mib:.1f} MiB of "
            "text: what wrote or changed it left something there that is none; export it again."
        )

    def no_trace(self, found: str) -> DataError:
        return DataError(f"{self._name} is no trace that torch exported but {found}: {RECORD_IT}.")

    @property
    def _name(self) -> str:
        return shorten(str(self.path))


def _raw(path: Path) -> IO[bytes]:
    if path.is_dir():
        inside = sorted(p.name for p in path.iterdir() if ".json" in p.suffixes)
        hint = f", such as {shorten(inside[0])}" if inside else "; there is none in it"
        raise DataError(f"{shorten(str(path))} is a folder: give one trace file{hint}.")
    return path.open("rb")


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return gzip.open(raw, "rb") if packed else raw  # type: ignore[return-value]  # reads bytes


class _Scanner:
    """A window of text over the file.

    Attributes:
        at: where decoding goes on.
        alone: up to here values are decoded one by one, since several at once failed.
    """

    def __init__(self, file: TraceFile, text: IO[str], moved: Callable[[], None]) -> None:
        self.file, self.text, self.moved = file, text, moved
        self.window, self.at, self.alone, self.ended = "", 0, 0, False
        # Not strict: names of kernels and files come as they are, with control characters in them.
        self.decode = json.JSONDecoder(strict=False).raw_decode

    def events(self) -> Iterator[dict[str, Any]]:
        first = self._next()
        if first == "[":
            self.at += 1
            yield from self._list()
            return
        self.at += 1
        seen = False
        while self._next() != "}":
            key = str(self._value())
            if self._next() == ":":
                self.at += 1
            if key == "traceEvents" and self._next() == "[":
                self.at, seen = self.at + 1, True
                yield from self._list()
            else:
                self._next()
                self.file.meta[key] = self._value()
        if not seen:
            raise self.file.no_trace("JSON without traceEvents")

    def _list(self) -> Iterator[dict[str, Any]]:
        while self._next() != "]":
            for value in self._several() or (self._value(),):
                self.file.events += 1
                if isinstance(value, dict):
                    yield value
        self.at += 1

    def _several(self) -> list[Any]:
        """Decodes a batch of the list's values; none where the window holds no whole batch, or an odd one.

        pydantic's decoder takes two thirds of the time of Python's, and refuses more. What it refuses is left to
        `_value`, which finds the very event that is broken.
        """
        border = _BORDER.search(self.window, self.at + BATCH) if self.at >= self.alone else None
        if border is None:
            self.alone = max(self.alone, len(self.window))
            return []
        try:
            values: list[Any] = from_json(f"[{self.window[self.at : border.end()]}]")
        except ValueError:
            self.alone = border.end()
            return []
        self.at = border.end()
        return values

    def _next(self) -> str:
        """The next character that matters; raises DataError where the file ends."""
        while True:
            self.at = _BETWEEN.match(self.window, self.at).end()  # type: ignore[union-attr]  # matches nothing, too
            if self.at < len(self.window):
                return self.window[self.at]
            if not self._more():
                raise self.file.cut_off()

    def _value(self) -> Any:
        """Decodes one value, with as much of the file as it takes."""
        while True:
            try:
                value, end = self.decode(self.window, self.at)
            except RecursionError:
                raise self.file.no_trace(f"JSON nested too deep after event {self.file.events}") from None
            except json.JSONDecodeError as error:
                if not (self._escaped(error) or self._goes_on(error)):
                    raise self._ended() from None
                continue
            except ValueError:  # digits without end
                raise self.file.broken() from None
            # A number that reaches the window's end may go on behind it.
            if end < len(self.window) or not self._more():
                self.at = end
                return value

    def _escaped(self, error: json.JSONDecodeError) -> bool:
        """Escapes backslashes that nobody did, where one is why decoding failed; whether there were any."""
        if not error.msg.startswith("Invalid \\"):
            return False
        escape, text = _LAST_ESCAPE if self.ended else _ESCAPE, self.window[self.at :]
        fixed = escape.sub(lambda found: found[0] if found[1] else r"\\", text)
        self.window = self.window[: self.at] + fixed
        return fixed != text

    def _goes_on(self, error: json.JSONDecodeError) -> bool:
        """Reads more where a value may go on behind the window; whether there was any.

        What is wrong with text behind it does not get better with more; that a string does not end may.
        """
        wrong = not error.msg.startswith("Unterminated") and len(self.window) - error.pos > _LONGEST_WORD
        if wrong or len(self.window) - self.at > LONGEST_VALUE:
            raise self.file.broken() from None
        return self._more() or self._escaped(error)

    def _ended(self) -> DataError:
        if self.file.events == 0 and not self.file.meta:
            return self.file.no_trace("something that is not JSON")
        return self.file.cut_off()

    def _more(self) -> bool:
        if self.ended:
            return False
        chunk = self.text.read(CHUNK)
        self.ended = not chunk
        self.file.chars += len(chunk)
        self.moved()
        self.window, self.at, self.alone = self.window[self.at :] + chunk, 0, 0
        return not self.ended
