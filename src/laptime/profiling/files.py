"""The profile's files, each written beside its place and renamed, so that no reader meets half of one."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from torch.autograd.profiler_util import EventList
from torch.profiler import profile

from laptime.records import write_text

_ROWS = 50
# torch clears its events at the end of each cycle, and the trace is of the last one too.
_OVER = "all recorded steps (of several cycles the last one's)"
_NAME_WIDTH, _SHAPES_WIDTH = 60, 100
# The levels above it take twice the time for a few percent.
_GZIP_LEVEL = 6


def write_trace(recorded: profile, path: Path) -> Path:
    """Exports a cycle's trace; torch can do that once for each.

    Args:
        recorded: a profiler that has ended.
        path: `*.json.gz`; the exporter writes plain JSON, which is packed here.

    Returns:
        The plain JSON beside it, which the caller removes.
    """
    plain, part = path.with_suffix(""), path.with_name(f"{path.name}.part")
    try:
        recorded.export_chrome_trace(str(plain))
        with plain.open("rb") as source, gzip.open(part, "wb", compresslevel=_GZIP_LEVEL) as target:
            shutil.copyfileobj(source, target, 2**20)
        part.replace(path)
    except BaseException:  # what stays in the folder is published with the run
        plain.unlink(missing_ok=True)
        raise
    finally:
        for half in (part, plain.with_name(f"{plain.name}.tmp")):  # the exporter's own
            half.unlink(missing_ok=True)
    return plain


def has_device_time(averages: EventList) -> bool:
    """Whether kernels were recorded; on a GPU without CUPTI, or where another tool holds it, there are none."""
    return any(row.self_device_time_total > 0 for row in averages)


def write_time_tables(recorded: profile, folder: Path) -> None:
    """Writes operators by self CPU time, by total CPU time, by input shape and, where there is any, by device time.

    Which columns there are and what each says: docs/profiling.md.
    """
    averages = recorded.key_averages()
    on_gpu = has_device_time(averages)
    write_text(folder / "self_cpu_time.txt", table(averages, "self_cpu_time_total", "By self CPU time"))
    write_text(folder / "total_cpu_time.txt", table(averages, "cpu_time_total", "By total CPU time"))
    first = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    shapes = recorded.key_averages(group_by_input_shape=True)
    name = "By self device time" if on_gpu else "By self CPU time"
    write_text(folder / "by_input_shape.txt", table(shapes, first, f"{name}, one row for each set of input shapes"))
    if on_gpu:
        kinds = (("self_device_time_total", "self"), ("device_time_total", "total"), ("device_time", "average"))
        tables = (table(averages, key, f"By {kind} device time") for key, kind in kinds)
        write_text(folder / "device_time.txt", "\n".join(tables))


def inference_tables(recorded: profile, title: str) -> list[str]:
    """Operators of forward passes alone, by self time and by input shape."""
    averages = recorded.key_averages()
    key, name = ("self_device_time_total", "device") if has_device_time(averages) else ("self_cpu_time_total", "CPU")
    shapes = recorded.key_averages(group_by_input_shape=True)
    of_shapes = f"{title}, by self {name} time, one row for each set of input shapes"
    return [
        table(averages, key, f"{title}, by self {name} time", "all passes"),
        table(shapes, key, of_shapes, "all passes"),
    ]


def write_memory_tables(recorded: profile, folder: Path, on_gpu: bool) -> None:
    """Writes operators by the memory that they themselves took, on the CPU and, where there is one, on the GPU."""
    averages = recorded.key_averages()
    text = table(averages, "self_cpu_memory_usage", "By memory taken on the CPU by the operator itself")
    if on_gpu:
        text += "\n" + table(averages, "self_device_memory_usage", "By memory taken on the GPU by the operator itself")
    write_text(folder / "memory.txt", text)


def table(averages: EventList, key: str, title: str, over: str = _OVER) -> str:
    """The first rows of the table that torch makes, by a key, below a line that says what they count."""
    text = averages.table(
        sort_by=key,
        row_limit=_ROWS,
        max_name_column_width=_NAME_WIDTH,
        max_shapes_column_width=_SHAPES_WIDTH,
    )
    return f"{title}; at most {_ROWS} rows, over {over}\n{text}"
