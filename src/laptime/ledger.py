"""The ledger of where each variant last ran: a file in the tree that benchmarks write, never a person.

python -m laptime.ledger LADDER_FOLDER LEDGER.json
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from laptime.errors import DataError
from laptime.records import LadderRecord, Readable, RunRecord, read_ladder, read_record, record_paths, write_json
from laptime.spec import explain


class LedgerEntry(Readable):
    """Where a variant last ran.

    Attributes:
        n: processes that the median rests on.
        epoch_s: median over processes of the median kept epoch.
        quality: final quality of the test split, mean over processes.
    """

    workload: str
    variant: str
    machine: str
    torch: str
    commit: str | None
    date: str
    data: str
    samples: int
    epochs: int
    n: int
    epoch_s: float
    samples_per_s: float
    quality: float | None = None


class Ledger(Readable):
    """All entries, one for each workload and variant."""

    entries: tuple[LedgerEntry, ...] = ()

    def find(self, workload: str, variant: str) -> LedgerEntry | None:
        """The entry of a variant, None where it never ran."""
        return next((e for e in self.entries if (e.workload, e.variant) == (workload, variant)), None)


def default_path() -> Path:
    """The ledger of this checkout; an installed package has none, and every variant then reads "never run"."""
    return Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "ledger.json"


def read_ledger(path: Path | None = None) -> Ledger:
    """Reads the ledger; an empty one where there is no file."""
    try:
        return Ledger.model_validate_json((path or default_path()).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Ledger()
    except ValueError as error:
        reason = explain(error) if isinstance(error, ValidationError) else str(error)
        raise DataError(
            f"the ledger {path or default_path()} is not valid ({reason}): take it from version control again."
        ) from error


def with_ladder(ledger: Ledger, ladder: LadderRecord, records: Iterable[RunRecord]) -> Ledger:
    """The ledger with a ladder's variants in place of what it held of them; shortened epochs replace no whole ones."""
    by_variant: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.status == "done" and record.kept and record.spec is not None:
            by_variant.setdefault(record.spec.variant, []).append(record)
    fresh = {(ladder.workload, name): _entry(ladder, name, runs) for name, runs in by_variant.items()}
    held = {(e.workload, e.variant): e for e in ledger.entries}
    newer = {k: e for k, e in fresh.items() if k not in held or e.samples >= held[k].samples}
    return Ledger(entries=tuple((held | newer).values()))


def _entry(ladder: LadderRecord, variant: str, runs: list[RunRecord]) -> LedgerEntry:
    epoch_s = median(median(r.laps) for r in runs)
    last = runs[-1]
    qualities = [q for r in runs if (q := getattr(r.kept[-1], f"test_{ladder.quality}", None)) is not None]
    machine = last.machine
    return LedgerEntry(
        workload=ladder.workload,
        variant=variant,
        machine=f"{machine.cpu}, {machine.cores} cores" if ladder.device == "cpu" else machine.gpu_names,
        torch=machine.torch,
        commit=ladder.commit,
        date=datetime.fromtimestamp(last.ended_at or 0, UTC).date().isoformat(),
        data=f"{ladder.data.kind} {ladder.data.digest[:12]}",
        samples=last.kept[-1].samples,
        epochs=len(last.epochs),
        n=len(runs),
        epoch_s=round(epoch_s, 4),
        samples_per_s=round(last.kept[-1].samples / epoch_s, 1),
        quality=round(sum(qualities) / len(qualities), 4) if qualities else None,
    )


def main(arguments: list[str]) -> int:
    """The command: takes a ladder's folder into a ledger."""
    folder, path = map(Path, arguments)
    ladder = read_ladder(folder / "ladder.json")
    records = [read_record(p) for p in record_paths(folder)]
    write_json(path, with_ladder(read_ledger(path), ladder, records))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
