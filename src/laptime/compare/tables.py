"""The tables that torch's profiler made of the baseline and the fastest variant, for the report."""

from __future__ import annotations

from pathlib import Path

from laptime.compare.model import Comparison
from laptime.tracking.publish import run_folder

_FOLDER = "profile"
# File and title of each, in the order of the report: where the time goes first.
FILES = (
    ("device_time.txt", "Operators by time on the GPU: self, total, average"),
    ("self_cpu_time.txt", "Operators by self CPU time"),
    ("total_cpu_time.txt", "Operators by total CPU time"),
    ("by_input_shape.txt", "Operators by input shape"),
    ("memory.txt", "Operators by the memory that they took"),
    ("inference.txt", "Inference alone, by batch size"),
)
COLUMNS = (
    ("Name", "The operator; regions and “Optimizer.step#…” are ranges around operators."),
    (
        "Self CPU, %",
        "Host time in the operator without the operators that it calls: rank by this. %: of all self times.",
    ),
    ("CPU total, %", "Host time in it and in all that it calls; rows overlap, so they add up to more than 100 %."),
    ("CPU time avg", "The total time of one call."),
    ("CPU Mem, Self CPU Mem", "Memory taken less memory given back on the host, with and without what it calls."),
    ("Self CUDA, %", "Time of the kernels that it launched itself on the GPU."),
    ("CUDA total", "Time of the kernels that it and all that it calls have launched."),
    ("CUDA time avg", "The GPU’s total of one call."),
    ("CUDA Mem, Self CUDA Mem", "Memory on the GPU, as on the host."),
    ("# of Calls", "Over all recorded steps together."),
    ("Input Shapes", "The sizes of its tensors; what is no tensor is []."),
)


def tables_beside(folder: Path, comparison: Comparison) -> dict[str, list[tuple[str, list[str]]]]:
    """Reads the tables of the variants that stand open in the report, as far as their files are there.

    Args:
        folder: the ladder's.
        comparison: of it, with its operators.

    Returns:
        By variant, title and lines of each table.
    """
    found = {}
    for variant in (t.variant for t in comparison.operators if t.role):
        place = run_folder(folder, variant, 0) / _FOLDER
        read = [(title, _lines(place / name)) for name, title in FILES]
        found[variant] = [(title, lines) for title, lines in read if lines]
    return found


def _lines(path: Path) -> list[str]:
    """Empty where the file can't be read: the report goes without it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
