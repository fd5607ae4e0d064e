"""Which item of a user's data set could not be read, as far as an error's frames tell."""

from __future__ import annotations

import dis
import operator
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from laptime.errors import shorten

_READING = ("__getitem__", "__getitems__")
# As many indices of a batch as a sentence holds.
_LONGEST = 200
_NOTE = "Raised at "
_NOTED = re.compile(rf"^{_NOTE}((?:item|one of items) .*)$", re.MULTILINE)


def item_in(error: BaseException) -> str:
    """The item that was read when an error was raised, `item 12 of Photos`; empty where nothing tells.

    The index is the one that the data set itself was asked for, within whatever wraps it: of those that are of a
    torch `Dataset`, the innermost; else the innermost method of the user's.

    Args:
        error: as it was caught, or as a loader worker handed it on, see `note_item`.
    """
    if noted := _NOTED.findall(str(error)):
        return str(noted[-1])
    for one in chain_of(error):
        if asked := list(_asked(one.__traceback__)):
            _, words = ([a for a in asked if a[0]] or asked)[-1]
            return words
    return ""


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it was raised from."""
    seen = list[int]()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.append(id(found))
        yield found
        found = found.__cause__ or found.__context__


def note_item(error: BaseException) -> None:
    """Writes the item behind an error into what a loader worker hands on of it, which is text alone."""
    if item := item_in(error):
        error.add_note(_NOTE + item)


def without_note(text: str) -> str:
    """What a loader worker handed on, without the line of `note_item`."""
    return _NOTED.sub("", text)


def own_file(file: Path) -> bool:
    """Whether a file is neither laptime's nor installed."""
    return not {"site-packages", "dist-packages", "laptime"} & set(file.parts)


def _asked(stack: TracebackType | None) -> Iterator[tuple[bool, str]]:
    """Calls that read items, the innermost last: whether of a torch Dataset, and the item where it is known."""
    for frame, _ in traceback.walk_tb(stack):
        code = frame.f_code
        if code.co_name not in _READING or code.co_argcount != len(("self", "index")) or _ours(frame):
            continue
        holder, index = (frame.f_locals.get(name) for name in code.co_varnames[:2])
        of_torch = any(kind.__name__ == "Dataset" for kind in type(holder).__mro__)
        if (words := _words(index)) and (of_torch or own_file(Path(code.co_filename))):
            yield of_torch, "" if _rebound(code) else f"{words} of {shorten(type(holder).__name__, 60)}"


def _ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("laptime.")


def _words(index: object) -> str:
    if isinstance(index, Sequence) and not isinstance(index, str):
        numbers = [n for n in map(_number, index) if n is not None]
        return shorten(f"one of items {', '.join(map(str, numbers))}", _LONGEST) if numbers else ""
    return "" if (number := _number(index)) is None else f"item {number}"


def _number(index: object) -> int | None:
    """An index as a number: ints, numpy's and tensors of one."""
    try:
        return None if isinstance(index, bool) else operator.index(index)  # type: ignore[arg-type]
    except Exception:  # whatever the user's objects raise
        return None


def _rebound(code: CodeType) -> bool:
    """Whether a method gives its index another value, but for a tensor's as a number, as torch's tutorials do."""
    name = code.co_varnames[1]
    stores = [i.argval for i in dis.get_instructions(code) if i.opname.startswith(("STORE_FAST", "STORE_DEREF"))]
    # Two at once are told as a pair, of which a load may be the second.
    return any(name in (s if isinstance(s, tuple) else (s,)) for s in stores) and "is_tensor" not in code.co_names
