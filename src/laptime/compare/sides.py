"""What stands beside records in run folders: the profiled segment in numbers, and advice."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from laptime.compare.model import Comparison
from laptime.errors import DataError, shorten
from laptime.records import Advice, RunRecord, TraceSummary, read_record, record_paths
from laptime.records.advice import ADVICE_SCHEMA
from laptime.records.trace import TRACE_SCHEMA
from laptime.spec import M, Versioned, read_versioned

TRACE, ADVICE = "profile/breakdown.json", "advice.json"
_TRACE_FILE = Versioned("breakdown", TRACE_SCHEMA, "profile the variant again with this version", DataError)
ADVICE_FILE = Versioned("advice", ADVICE_SCHEMA, "run the variant again with this version", DataError)


@dataclass
class Sides:
    """By variant; of its processes the first that has a file.

    Attributes:
        unreadable: a sentence for each file that can't be read; the comparison goes on without it.
    """

    traces: dict[str, TraceSummary] = field(default_factory=dict)
    advice: dict[str, Advice] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def renamed(self, names: dict[str, str]) -> Sides:
        """The same under other names of the variants; what has no other name keeps its own."""
        return Sides(
            {names.get(v, v): t for v, t in self.traces.items()},
            {names.get(v, v): a for v, a in self.advice.items()},
            list(self.unreadable),
        )

    def add(self, other: Sides) -> None:
        """Takes over what is not there yet."""
        self.traces = other.traces | self.traces
        self.advice = other.advice | self.advice
        self.unreadable += [text for text in other.unreadable if text not in self.unreadable]

    def warned(self, comparison: Comparison) -> Comparison:
        """The comparison with a caution for each file that can't be read."""
        return comparison.model_copy(update={"cautions": (*comparison.cautions, *self.unreadable)})


def load_sides(folder: Path) -> Sides:
    """Reads what stands beside each record below a folder, or beside a record file; trials are left out.

    Records that can't be read are passed over here: `laptime.compare.load` refuses them.
    """
    paths = [folder] if folder.is_file() else record_paths(folder)
    found = Sides()
    for path in paths:
        present = [path.parent / name for name in (TRACE, ADVICE) if (path.parent / name).is_file()]
        variant = _variant(path) if present else None
        if variant is not None:
            _read(path.parent, variant, found)
    return found


def _variant(path: Path) -> str | None:
    try:
        record: RunRecord = read_record(path)
    except DataError:
        return None
    return record.spec.variant if record.spec else None


def _read(folder: Path, variant: str, found: Sides) -> None:
    trace = _file(folder / TRACE, TraceSummary, _TRACE_FILE, found)
    advice = _file(folder / ADVICE, Advice, ADVICE_FILE, found)
    if trace is not None:
        found.traces.setdefault(variant, trace)
    if advice is not None:
        found.advice.setdefault(variant, advice)


def _file(path: Path, model: type[M], kind: Versioned, found: Sides) -> M | None:
    if not path.is_file():
        return None
    try:
        return read_versioned(path, model, kind)
    except DataError as error:
        found.unreadable.append(f"Left out, since {shorten(str(error), 300)}")
        return None
