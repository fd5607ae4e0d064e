"""What the whole machine did while a process trained: samples, a line each, in `system.jsonl` beside its record."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from laptime.records.base import Moment, Readable

SYSTEM = "system.jsonl"


class SystemSample(Readable):
    """The machine at one moment.

    Attributes:
        at: seconds since 1970.
        values: by MLflow's names of its own system metrics, whose last word is the unit.
    """

    at: Moment
    values: dict[str, float]


def add_sample(path: Path, sample: SystemSample) -> None:
    """Adds a line; raises OSError where it can't be written."""
    with path.open("a", encoding="utf-8") as file:
        file.write(sample.model_dump_json() + "\n")


def read_samples(path: Path) -> tuple[SystemSample, ...]:
    """All samples, in their order; none without a file that can be read, and without a line that was cut off."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # none, or another's: no run is to fail for want of them
        return ()
    found = []
    for line in lines:
        try:
            found.append(SystemSample.model_validate_json(line))
        except ValidationError:  # the disk was full, or the process was killed
            continue
    return tuple(found)
