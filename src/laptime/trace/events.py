"""What is kept of a trace's events: a row of a few values, or nothing."""

from __future__ import annotations

import marshal
import math
import re
import sys
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from laptime.trace.operands import dtype_of, formats_of, is_elementwise, is_matrix_work, window_of

OP, NOTE, FRAME, RUNTIME, KERNEL, COPY, FILL, _OLD_OP = range(8)
DEVICE = frozenset((KERNEL, COPY, FILL))

# Categories as kineto writes them; the capitals are those of torch before 1.11.
_KINDS = {
    "cpu_op": OP,
    "Operator": _OLD_OP,
    "user_annotation": NOTE,
    "python_function": FRAME,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "xpu_runtime": RUNTIME,
    "xpu_driver": RUNTIME,
    "mtia_runtime": RUNTIME,
    "privateuse1_runtime": RUNTIME,
    "privateuse1_driver": RUNTIME,
    "Runtime": RUNTIME,
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": COPY,
    "Memcpy": COPY,
    "gpu_memset": FILL,
    "Memset": FILL,
}
# Fills on the host: a copy of their result to the device could be a fill on the device.
_FILLS = (
    "zeros ones full rand randn randint randperm arange linspace eye zeros_like ones_like full_like rand_like "
    "randn_like empty lift_fresh"
)
FILLS = frozenset(f"aten::{name}" for name in _FILLS.split())
# They make a whole tensor of zeros around the gradient of a part of it; its shape comes behind the gradient.
SLICED = frozenset(("aten::select_backward", "aten::slice_backward"))
# Where in a copy of the whole gradient the part lies that a write into a tensor had filled.
PLACED = "aten::as_strided"
# What a row says beside time, place and name: its last values, less the sequence number.
Detail = tuple[str, str, str, int]
_NONE: Detail = ("", "", "", -1)
# Its own class's `__new__` takes twice as long, by name.
_new = tuple.__new__
# What values of other types than torch writes lead to.
_MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# The most that SQLite holds; what it is cut from stays an id.
_63_BITS = (1 << 63) - 1
_FRAME = re.compile(r"(.+)\((\d+)\): ")
# CUPTI names a call of CUDA with its version, and those on streams by thread with that; older kineto leaves both out.
_VARIANT = re.compile(r"(?:_ptsz|_ptds|_v\d+)+$")
# Which way a copy went, as kineto names it.
WAY = re.compile(r"Memcpy (HtoD|DtoH|DtoD)", re.IGNORECASE)
_MARK = "ProfilerStep#"
# What torch before 1.11 wrote as operators, too.
_OLD_NOTES = ("enumerate(DataLoader)", "Optimizer.", _MARK)
_STEP = re.compile(_MARK + r"\d+$")
# Names of scripts that people write, though the standard library has them too.
_SCRIPTS = {"test", "profile", "trace", "code"}
_LIBRARIES = (sys.stdlib_module_names - _SCRIPTS) | {
    *("torch", "torchvision", "torchaudio", "functorch", "numpy", "PIL", "scipy", "pandas", "tqdm", "triton"),
    *("lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "transformers", "torchmetrics", "mlflow"),
    "laptime",
}
_BYTES = {"double": 8, "long int": 8, "long": 8, "half": 2, "c10::half": 2, "bfloat16": 2, "c10::bfloat16": 2}
_BYTES |= {"byte": 1, "char": 1, "bool": 1, "unsigned char": 1, "float64": 8, "int64": 8, "float16": 2}


class Event(NamedTuple):
    """A row of a trace.

    Attributes:
        begin, dur: microseconds; `begin` counts from the first event of the file.
        lane: thread of the host or stream of the device.
        external, correlation: 0 where there is none.
        name: of a `FRAME` the user's line.
        shapes: of the inputs; of an operator in FILLS or SLICED the shape that it makes.
        dtype, window: see `OperatorRow`.
        size: bytes of a copy or a collective; of an operator in SLICED, and of PLACED, a number for where in its
            tensor the slice lies; -1 where not known.
        sequence: autograd's count of nodes as an operator was told it, from 1; that of the node that a function of a
            backward goes through, negative; 0 of neither.
    """

    begin: float
    dur: float
    kind: int
    lane: str
    external: int
    correlation: int
    name: str
    shapes: str
    dtype: str
    window: str
    size: int
    sequence: int

    @property
    def end(self) -> float:
        return self.begin + self.dur


def is_step(event: Event) -> bool:
    return event.name.startswith(_MARK) and event.kind in (NOTE, OP) and _STEP.match(event.name) is not None


class Reducer:
    """Turns raw events into rows, and notes what the trace holds at all.

    Strings are shared between rows, so what a row holds on to is its numbers.
    """

    def __init__(self) -> None:
        self.holds: set[str] = set()
        self._base: float | None = None
        self._known: dict[str, str] = {}
        self._lanes: dict[tuple[object, object], str] = {}
        self._shapes: dict[bytes, str] = {}
        self._lines: dict[tuple[str, str], str] = {}
        self._details: dict[int, Callable[[str, dict[str, Any]], Detail]] = {OP: self._op, NOTE: _note}

    def row(self, raw: dict[str, Any]) -> Event | None:
        """The row of an event; None where nothing needs it, or where it is malformed."""
        if raw.get("ph") != "X":
            if raw.get("name") == "[memory]":
                self.holds.add("memory")
            return None
        try:
            kind = _KINDS.get(raw.get("cat", ""))
            return None if kind is None else self._row(raw, kind)
        except _MALFORMED:
            return None

    def _row(self, raw: dict[str, Any], kind: int) -> Event | None:
        args = raw.get("args") or {}
        begin, dur = float(raw["ts"]), float(raw.get("dur", 0.0))
        if not math.isfinite(begin + dur) or dur < 0:
            return None
        name = raw["name"]
        if kind == _OLD_OP:
            kind = NOTE if name.startswith(_OLD_NOTES) else OP
        if kind == FRAME:
            if name == "Python GC":
                kind = NOTE
            else:
                self.holds.add("stacks")
                name = self._line(name, str(args.get("CallFrom", "")))
        elif kind == RUNTIME and "_" in name:
            name = _VARIANT.sub("", name)
        name = self._known.get(name) or self._share(name)
        if not name:
            return None
        if self._base is None:
            self._base = begin
        place = (raw.get("pid"), raw.get("tid"))
        lane = self._lanes.get(place) or self._lane(place)
        external = int(args.get("External id") or args.get("external id") or 0) & _63_BITS
        correlation = int(args.get("correlation") or 0) & _63_BITS
        detail = self._details.get(kind, _device)(name, args) if args else _NONE
        sequence = _sequence(args) if kind == OP and "Sequence number" in args else 0
        return _new(Event, (begin - self._base, dur, kind, lane, external, correlation, name, *detail, sequence))

    def _op(self, name: str, args: dict[str, Any]) -> Detail:
        dims = args.get("Input Dims", args.get("Input dims"))
        if dims is None:
            return _NONE
        self.holds.add("shapes")
        if name in FILLS:
            concrete = args.get("Concrete Inputs")
            made = concrete[0] if concrete else ""
            made = made if isinstance(made, str) and made.startswith("[") else str(dims[0] if dims else "")
            return self._share(made), "", "", -1
        if name in SLICED:
            return self._sliced(args.get("Concrete Inputs"))
        # The same bytes are the same shapes, and are had in a third of the time that their text takes.
        packed = marshal.dumps(dims, 0)
        shapes = self._shapes.get(packed)
        if shapes is None:
            shapes = self._shapes[packed] = self._share(" ".join(str(d) for d in dims if d))
        if not is_matrix_work(name):
            place = _place(args.get("Concrete Inputs")) if name == PLACED else -1
            return shapes, "", self._formats(name, dims, args.get("Input Strides")), place
        dtype, window = dtype_of(dims, args.get("Input type")), window_of(name, args.get("Concrete Inputs"))
        return shapes, self._share(dtype), self._share(window), -1

    def _sliced(self, concrete: Any) -> Detail:
        whole = concrete[1] if isinstance(concrete, list) else ""
        return self._share(whole), "", "", _place(concrete[1:] if whole else None)

    def _formats(self, name: str, dims: Any, strides: Any) -> str:
        if strides is None:
            return ""
        self.holds.add("strides")
        return formats_of(dims, strides) if is_elementwise(name) else ""

    def _lane(self, place: tuple[object, object]) -> str:
        lane = self._lanes[place] = self._share(f"{place[0]}/{place[1]}")
        return lane

    def _line(self, name: str, caller: str) -> str:
        """The user's line that a Python frame stands for; empty for a library's."""
        key = (name, caller) if name[0] != "<" else ("", caller)
        if key not in self._lines:
            found = _FRAME.match(name)
            own = f"{found[1]}:{found[2]}" if found and is_users(found[1]) else ""
            self._lines[key] = own or (caller if is_users(caller.rpartition(":")[0]) else "")
        return self._lines[key]

    def _share(self, text: str) -> str:
        known = self._known.get(text)
        if known is None:
            # JSON may escape halves of a character, which no file takes.
            known = self._known[text] = text.encode("utf-8", "replace").decode("utf-8")
        return known


def is_users(path: str) -> bool:
    """Whether a source file is neither torch's nor another library's.

    The profiler cuts the search path off (`torch/nn/modules/conv.py`, `contextlib.py`, `train.py`).
    """
    path = path.replace("\\", "/")
    if not path or path[0] == "<" or "-packages/" in path or "/lib/python3" in path:
        return False
    return path.removeprefix("./").partition("/")[0].removesuffix(".py") not in _LIBRARIES


def _sequence(args: dict[str, Any]) -> int:
    number = (int(args["Sequence number"]) + 1) & _63_BITS
    return -number if args.get("Fwd thread id") else number


def _place(concrete: Any) -> int:
    """A number for where in a tensor a part lies, by an operator's arguments behind its first."""
    place = concrete[1:] if isinstance(concrete, list) else []
    return zlib.crc32(" ".join(place).encode()) if place else -1


def _note(name: str, args: dict[str, Any]) -> Detail:
    """A note has a size where it is a collective on the host: `gloo:all_reduce` lists its tensors."""
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not dims or not types or ":" not in name:
        return _NONE
    return _sized(sum(_elements(d) * bytes_of(str(t)) for d, t in zip(dims, types, strict=False)))


def _device(_: str, args: dict[str, Any]) -> Detail:
    if "bytes" in args:
        return _sized(int(args["bytes"]))
    if "In msg nelems" in args:
        return _sized(int(args["In msg nelems"]) * bytes_of(str(args.get("dtype", ""))))
    return _NONE


def _sized(size: int) -> Detail:
    return "", "", "", min(size, _63_BITS)


def _elements(dims: object) -> int:
    if not isinstance(dims, list):
        return 0
    count = 1
    for size in dims:
        count *= int(size)
    return count if dims else 0


def bytes_of(dtype: str) -> int:
    """Bytes of an element, by C++'s, NCCL's or torch's name; 4 where it is not known."""
    return _BYTES.get(dtype.lower(), 4)
