"""Reads ladders and records from folders."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from laptime.errors import DataError, shorten
from laptime.records import LADDER_SCHEMA, LadderRecord, RunRecord, read_record
from laptime.spec import explain


def load(folder: Path) -> tuple[LadderRecord | None, list[RunRecord]]:
    """Reads `ladder.json`, where there is one, and every `record.json` below; a record file may be given.

    Raises:
        DataError: the ladder or a record can't be read; all that can't are named in one sentence.
    """
    if folder.is_file():
        return None, [read_record(folder)]
    ladder = folder / "ladder.json"
    return (read_ladder(ladder) if ladder.is_file() else None), _read_all(sorted(folder.rglob("record.json")), folder)


def read_ladder(path: Path) -> LadderRecord:
    """Reads a ladder.

    Raises:
        DataError: it can't be read, is no ladder or is of another version.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"the ladder {path} can't be read: {error}.") from error
    found = fields.get("schema") if isinstance(fields, dict) else None
    if found != LADDER_SCHEMA:
        raise DataError(
            f"the ladder {path} has schema {shorten(str(found))!r}, this version reads {LADDER_SCHEMA!r}: "
            "run the ladder again with this version."
        )
    try:
        return LadderRecord.model_validate(fields)
    except ValidationError as error:
        raise DataError(f"the ladder {path} is not valid: {explain(error)}.") from error


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
