"""The simple profile: what a run did, how often and for how long, from its record alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from laptime.records.run import EpochRecord, RunRecord

_HEAD = ("Action", "Mean duration (s)", "Calls", "Total time (s)", "Share (%)")


class Action(NamedTuple):
    """One row.

    Attributes:
        total_s: of all calls together.
    """

    name: str
    calls: int
    total_s: float


def actions(record: RunRecord) -> list[Action]:
    """What a run did, by total time: the parts of its steps, evaluations, and what was done once.

    A part of the step is called once a step; evaluation once a counted epoch, a checkpoint where
    one was written.
    """
    found = [*_steps(record.epochs), *_once(record)]
    for name, spent in (
        ("evaluation", [e.evaluate_s for e in record.epochs if e.evaluate_s is not None]),
        ("checkpoint", [e.checkpoint_s for e in record.epochs if e.checkpoint_s is not None]),
    ):
        found += [Action(name, len(spent), sum(spent))] if spent else []
    return sorted(found, key=lambda a: -a.total_s)


def simple_table(record: RunRecord) -> str:
    """The actions of a run as a table in plain text, the longest first, with aligned columns.

    Start-up (imports, data, model) and warm-up are in it, so that the shares are those of the process; what a run does
    after its last epoch is in it as far as its record knows.
    """
    rows = actions(record)
    if not rows:
        return "Nothing was timed: the run ended before its first step.\n"
    whole = sum(a.total_s for a in rows)
    cells = [_HEAD, ("Total", "-", "-", f"{whole:.4f}", "100.00")]
    for name, calls, total in rows:
        share = 100 * total / whole if whole else 0.0
        cells.append((name, f"{total / calls:.6f}", f"{calls}", f"{total:.4f}", f"{share:.2f}"))
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEAD))]
    lines = [_line(row, widths) for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]]) + "\n"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join([row[0].ljust(widths[0]), *numbers])


def _steps(epochs: tuple[EpochRecord, ...]) -> Iterator[Action]:
    for part in dict.fromkeys(name for e in epochs for name in e.parts_s):
        having = [e for e in epochs if part in e.parts_s]
        # A record of a user's own loop may have parts and no number of steps: then a call is an epoch's.
        yield Action(part, sum(e.steps or 1 for e in having), sum(e.parts_s[part] for e in having))


def _once(record: RunRecord) -> Iterator[Action]:
    for name, seconds in (
        ("start-up", record.startup_s),
        ("warm-up", record.warmup_s),
        ("saving the model", record.checkpoint_s),
    ):
        if seconds is not None:
            yield Action(name, 1, seconds)
