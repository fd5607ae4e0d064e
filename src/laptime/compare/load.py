"""Reads ladders and records from folders."""

from __future__ import annotations

from pathlib import Path

from laptime.errors import DataError
from laptime.records import LadderRecord, RunRecord, read_ladder, read_record, record_paths
from laptime.records.files import LADDER_NAME


def places(given: Path) -> list[Path]:
    """What a path stands for: itself, a ladder's file its folder, a folder above ladders each and what is beside."""
    if given.name == LADDER_NAME and given.is_file():
        return [given.parent]
    if not given.is_dir() or (given / LADDER_NAME).is_file():
        return [given]
    ladders: list[Path] = []
    for path in sorted(given.rglob(LADDER_NAME)):
        if not any(path.is_relative_to(ladder) for ladder in ladders):
            ladders.append(path.parent)
    if not ladders:
        return [given]
    loose = [p for p in record_paths(given) if not any(p.is_relative_to(ladder) for ladder in ladders)]
    return [*ladders, *loose]


def load(folder: Path) -> tuple[LadderRecord | None, list[RunRecord]]:
    """Reads `ladder.json`, where there is one, and every `record.json` below; a record file may be given.

    Raises:
        DataError: the ladder or a record can't be read; all that can't are named in one sentence.
    """
    if folder.is_file():
        return None, [read_record(folder)]
    ladder = folder / LADDER_NAME
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
