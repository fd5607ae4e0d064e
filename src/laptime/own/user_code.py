"""Errors in a user's own file, told in one sentence with the line of code that they came from."""

from __future__ import annotations

import dis
import inspect
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

from laptime.errors import lacking, shorten
from laptime.own.items import chain_of, item_in, own_file, without_note

_WORKER_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
# A thread's stack as faulthandler writes it, beside those of others in a crash; `Stack` where it is one alone.
_THREAD = re.compile(r"^(Current thread|Thread|Stack) .*\(most recent call first\):\n((?: .*\n?)*)", re.MULTILINE)
_CRASH = "Fatal Python error: "
_LONGEST = 300
# With which argparse ends a process.
_WRONG_ARGUMENTS = 2
_BROUGHT = "leave .cuda() and .to(...) out, since net and batches are brought to the run's device"
_WRAPPED = "leave it out, since the rungs ddp and dp wrap the net"
_FLOATS = "the net's weights are floats of 32 bits, which numpy's are not by themselves: give it inputs.float()"
# What words of torch's and Python's own say of a mistake that is often made, as patterns, with what helps.
_REMEDIES = {
    "Default process group has not been initialized|environment variable RANK expected|^FSDP needs": _WRAPPED,
    "^'(LOCAL_RANK|RANK|WORLD_SIZE)'$": "torchrun alone sets it, so give it a default, as os.environ.get(name, 0) does",
    "Found no NVIDIA driver": _BROUGHT,
    "not compiled with CUDA": _BROUGHT,
    "backward through the graph a second time": (
        "where loss() calls backward() itself, leave that and the optimizer out, since laptime calls both; what is "
        "kept from batch to batch wants detach()"
    ),
    "on the same device": f"{_BROUGHT}, and make tensors there (device=inputs.device)",
    r"target dtype to be Long|scalar type Long but found": "classes are whole numbers of 64 bits: give labels.long()",
    r"^Target -?\d+ is out of bounds": (
        "a net of n outputs knows the classes 0 to n - 1: give it more outputs, or other numbers"
    ),
    r"^index out of range in self": (
        "an embedding of n rows knows the numbers from 0 to n - 1: give it more rows, or other numbers"
    ),
    r"same dtype, but got (Double|Byte|Char|Short|Int|Long|Bool) and Float": _FLOATS,
    r"Input type \((double|unsigned char|signed char|short|int|long \w+|long|bool)\) and \w+ type \(float\)": _FLOATS,
    "^Expected to have finished reduction in the prior": (
        "leave ddp out, whose ranks all want a gradient for each weight in each step; flat-reduce takes nets without"
    ),
    "^Unable to create tensor, you should probably activate truncation": (
        "a Trainer leaves out columns that the net does not take: do so in data(), by select_columns() say"
    ),
    "^Trying to access flag .* before flags were parsed": (
        "app.run() parses them, and is not called here: say FLAGS(sys.argv) behind their definitions"
    ),
    "EOF when reading a line": "nothing can be typed in here: leave input() out",
}
# Functions of a workload that may set what others read, with when they are called and what to do.
_ANEW = (
    "later, and again for other optimizers: set what loss() reads in __init__(), and for a rate let it count its steps"
)
_SETTING = {"optimizer": _ANEW, "schedule": _ANEW, "model": "later: set it in __init__()"}


def complaint(
    error: BaseException,
    path: Path,
    makers: Iterable[object] = (),
    blamed: Sequence[tuple[Path, int]] = (),
    item: bool = True,
) -> str:
    """What went wrong, at which item and where: `ValueError: no label, at item 3 of Photos (train.py, line 12: raise)`.

    Args:
        error: as it was caught; of a DataLoader's worker process, which hands its traceback on as text, too.
        path: the user's file; where no line of it took part, one of a module beside it is named.
        makers: functions that made what the error is about, the likeliest first; the first of the user's is named where
            none of their lines took part.
        blamed: files and lines that are known to be behind it, the innermost last; for where none took part in it.
        item: whether the item of the user's data is told that was being read, see `item_in`.

    Returns:
        Without a full stop, and without a place where the user's code took no part in the error.
    """
    if (lacks := lacking(error)) is not None:
        return lacks
    kind, text = _what(error)
    known = next((f"; {helps}" for words, helps in _REMEDIES.items() if re.search(words, text)), "")
    remedy = known or _unparsed(error) or _ended(error) or _unset(error) or _uninstalled(error, path)
    at = f", at {found}" if item and (found := item_in(error)) else ""
    said = f"{kind}: {shorten(text, _LONGEST)}{at}{remedy}" if text else f"{kind}{at}"
    return f"{said}{place_in(path, _behind(path, error) or blamed, makers)}"


def _unparsed(error: BaseException) -> str:
    """What helps where a parser of arguments has ended the process or one is looked for, since there are none."""
    ended = isinstance(error, SystemExit) and error.code == _WRONG_ARGUMENTS
    frames = traceback.extract_tb(error.__traceback__)
    parsing = ended and any(Path(f.filename).name == "argparse.py" for f in frames)
    # `sys.argv[1]`, or `_, data = sys.argv`.
    looking = isinstance(error, IndexError | ValueError) and bool(frames) and "sys.argv" in (frames[-1].line or "")
    return "; no arguments are given here, so let those that it requires have defaults" if parsing or looking else ""


def _ended(error: BaseException) -> str:
    """What helps where a library's command line, click's say, ends the process that imports the user's file."""
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, SystemExit) or "<module>" not in [f.name for f in frames]:
        return ""
    ours = own_file(Path(frames[-1].filename))
    return "" if ours else "; put what is a program of its own behind `if __name__ == '__main__':`"


def _unset(error: BaseException) -> str:
    """What helps where code of the user's reads an attribute that another of its functions sets, called later."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not isinstance(error, AttributeError) or not frames:
        return ""
    holder, name = error.obj, error.name
    if holder is None:  # what began as None: `self.made.param_groups`
        line = linecache.getline(frames[-1].f_code.co_filename, frames[-1].f_lineno)
        found = re.search(rf"\bself\.(\w+)\.{name}\b", line)
        holder, name = frames[-1].f_locals.get("self"), found[1] if found else None
    for function, when in _SETTING.items():
        code = getattr(getattr(type(holder), function, None), "__code__", None)
        set_in = [] if code is None or code in [frame.f_code for frame in frames] else dis.get_instructions(code)
        lines = [i.positions.lineno for i in set_in if _sets(i, name) and i.positions]
        if lines:
            return f"; {function}() sets self.{name} (line {lines[0]}), and is called {when}"
    return ""


def _sets(instruction: dis.Instruction, name: str | None) -> bool:
    return instruction.opname == "STORE_ATTR" and instruction.argval == name


def raised_by_hand(error: BaseException) -> bool:
    """Whether a KeyboardInterrupt is a `raise` of the user's code, and not Ctrl-C, which comes between instructions."""
    stack = error.__traceback__
    while stack is not None and stack.tb_next is not None:
        stack = stack.tb_next
    if not isinstance(error, KeyboardInterrupt) or stack is None:
        return False
    code = stack.tb_frame.f_code
    file = Path(code.co_filename)
    if not own_file(file) or file.is_relative_to(sysconfig.get_path("stdlib")):
        return False
    return any(i.opname == "RAISE_VARARGS" and i.offset == stack.tb_lasti for i in dis.get_instructions(code))


def _uninstalled(error: BaseException, path: Path) -> str:
    """What helps where a module is missing; of one within a package that is there, its name alone tells what."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or "." in error.name:
        return ""
    if error.name in (folder.name for folder in path.parents):
        return f"; it is the file's own package: install that (pip install -e), or start laptime above {error.name}/"
    return f"; install what it belongs to where laptime is ({sys.prefix}), or put it beside the file"


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """A function's parameters by name, or a class's, whatever their annotations name.

    From Python 3.14 on annotations are evaluated where they are asked for, and may name what type checkers alone know.

    Raises:
        TypeError, ValueError: Python does not know them.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.STRING).parameters
    return inspect.signature(function).parameters


def wanted(function: Callable[..., Any]) -> list[str]:
    """The arguments that a function can't do without; none where Python does not know."""
    try:
        given = parameters_of(function).values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in given if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def place_in(path: Path, places: Sequence[tuple[Path, int]], makers: Iterable[object] = ()) -> str:
    """The user's own line in words, ` (train.py, line 12: raise ValueError(...))`; empty where none took part.

    Args:
        path: as for `complaint`.
        places: files and lines that took part, the innermost last.
        makers: as for `complaint`.
    """
    mine = _of(path, places) or _of(path, _begins(makers))[:1]
    if not mine:
        return ""
    file, line = mine[-1]
    code = shorten(linecache.getline(str(file), line).strip().removesuffix(":"), 100)
    return f" ({file.name}, line {line}{f': {code}' if code else ''})"


def stack_in(text: str) -> list[tuple[Path, int]]:
    """Files and lines of a stack as faulthandler writes it, the innermost last."""
    return [(Path(name), int(line)) for name, line in _WORKER_FRAME.findall(text)][::-1]


def crash_place(text: str, own: Path | None) -> str:
    """Where a process stood that a signal ended, as `place_in` says it; empty where nothing tells.

    Args:
        text: what it said, with the stack that faulthandler left there.
        own: the user's file, whose line is named; where none of theirs took part or there is none, the innermost is.
    """
    _, told, stack = text.rpartition(_CRASH)
    return _place_of_thread(stack, own) if told else ""


def hang_place(text: str, own: Path) -> str:
    """The user's line where one of the processes stood that were asked, the first that answered, see `place_in`."""
    told = [place_in(own, stack_in(stack)) for kind, stack in _THREAD.findall(text)]
    return next(filter(None, told), "")


def before_crash(text: str) -> str:
    """What a process said before faulthandler wrote of its end."""
    return text.partition(_CRASH)[0]


def _place_of_thread(text: str, own: Path | None) -> str:
    """The thread's that is the current one; where that runs no Python (one of OpenMP's), the main one's, told last."""
    threads = _THREAD.findall(text)
    current = [stack for kind, stack in threads if kind != "Thread"] or [stack for _, stack in threads[-1:]]
    places = stack_in(current[0]) if current else []
    named = place_in(own, places) if own is not None else ""
    return named or "".join(f" ({file.name}, line {line})" for file, line in places[-1:])


def _of(path: Path, places: Sequence[tuple[Path, int]]) -> list[tuple[Path, int]]:
    """The places in the user's file, else those in modules beside it."""
    beside = [p for p in places if p[0].is_relative_to(path.parent) and own_file(p[0])]
    return [p for p in places if p[0] == path] or beside


def _behind(path: Path, error: BaseException) -> list[tuple[Path, int]]:
    """The user's places that an error passed through, else those of what it was raised from."""
    return next(filter(None, (_of(path, _places(one)) for one in chain_of(error))), [])


def _begins(makers: Iterable[object]) -> list[tuple[Path, int]]:
    codes = [getattr(_undecorated(maker), "__code__", None) for maker in makers]
    return [(Path(code.co_filename), code.co_firstlineno) for code in codes if code is not None]


def _undecorated(maker: Any) -> object:
    """What a decorator is put around, torch.enable_grad() say, whose own line is torch's."""
    return inspect.unwrap(maker) if inspect.isroutine(maker) else maker


def _what(error: BaseException) -> tuple[str, str]:
    # A syntax error's own words repeat its place, which stands behind them with the line.
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    kind, text = type(error).__name__, " ".join(said.split())
    if "DataLoader worker" in text and "Traceback" in text:
        # What stands behind the worker's last frame: `ValueError: no label`.
        kind, _, text = " ".join(_behind_frames(without_note(str(error))).split()).partition(": ")
        return kind, f"{text} [in a loader worker]"
    return kind, text


def _behind_frames(text: str) -> str:
    """What an error says in a traceback as text, of as many lines as it has."""
    lines = text.strip().splitlines()
    frames = [n for n, line in enumerate(lines) if _WORKER_FRAME.search(line)]
    behind = lines[frames[-1] + 1 :] if frames else lines[-1:]
    return "\n".join(dropwhile(lambda line: not line or line[0].isspace(), behind))


def _places(error: BaseException) -> list[tuple[Path, int]]:
    """Files and lines that an error passed through, the innermost last."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return [(Path(error.filename), error.lineno)]
    frames = [(Path(f.filename), f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    if "DataLoader worker" in str(error):
        frames += [(Path(name), int(line)) for name, line in _WORKER_FRAME.findall(str(error))]
    return frames
