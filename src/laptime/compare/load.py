"""Reads ladders and records from folders."""

from __future__ import annotations

from pathlib import Path

from laptime.errors import DataError
from laptime.records import TRIALS, VERIFY, LadderRecord, RunRecord, read_ladder, read_record


def load(folder: Path) -> tuple[LadderRecord | None, list[RunRecord]]:
    """Reads `ladder.json`, where there is one, and every `record.json` below; a record file may be given.

    A ladder's trials only decided what joined, and its verifying turns what advice is worth: neither is compared.

    Raises:
        DataError: the ladder or a record can't be read; all that can't are named in one sentence.
    """
    if folder.is_file():
        return None, [read_record(folder)]
    ladder, paths = folder / "ladder.json", sorted(folder.rglob("record.json"))
    if not ladder.is_file():
        return None, _read_all(paths, folder)
    aside = {folder / TRIALS, folder / VERIFY}
    return read_ladder(ladder), _read_all([p for p in paths if aside.isdisjoint(p.parents)], folder)


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
