"""Reads ladders and records from folders."""

from __future__ import annotations

from pathlib import Path

from laptime.errors import DataError
from laptime.records import LadderRecord, RunRecord, read_ladder, read_record, record_paths


def load(folder: Path) -> tuple[LadderRecord | None, list[RunRecord]]:
    """Reads `ladder.json`, where there is one, and every `record.json` below; a record file may be given.

    Raises:
        DataError: the ladder or a record can't be read; all that can't are named in one sentence.
    """
    if folder.is_file():
        return None, [read_record(folder)]
    ladder = folder / "ladder.json"
    return read_ladder(ladder) if ladder.is_file() else None, _read_all(record_paths(folder), folder)


def _read_all(paths: list[Path], folder: Path) -> list[RunRecord]:
    records, bad = [], []
    for path in paths:
        try:
            records.append(read_record(path))
        except DataError as error:
            bad.append(str(error).rstrip("."))
    if bad:
        more = f" (and {len(bad) - 3} more)" if len(bad) > 3 else ""
        raise DataError(
            f"{len(bad)} of {len(paths)} records below {folder} are unusable: {'; '.join(bad[:3])}{more}; "
            "move them away to compare the others."
        )
    return records
