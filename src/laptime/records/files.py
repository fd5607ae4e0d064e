"""Records as files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from laptime.errors import DataError, shorten
from laptime.records.ladder import LADDER_SCHEMA, SEARCH, TRIALS, VERIFY, LadderRecord
from laptime.records.run import RECORD_SCHEMA, RunRecord
from laptime.spec import Versioned, read_versioned

LADDER_NAME = "ladder.json"
PARTIAL = "record.partial.json"
"""What a run knows once its epochs are counted, while work goes on that may take its process down."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """The file beside a path that is renamed to it at the end, so that a reader never sees half of one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole."""
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, model: BaseModel | dict[str, Any]) -> None:
    """Writes a record whole, as `write_text` does, and its folder where there is none."""
    body = model.model_dump(mode="json", by_alias=True) if isinstance(model, BaseModel) else model
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    except UnicodeEncodeError as error:
        begin, end = error.object.rfind('"', 0, error.start) + 1, error.object.find('"', error.start)
        raise DataError(f"{shorten(error.object[begin:end])!r} is a name that is no UTF-8: rename it.") from error
    except OSError as error:
        error.filename = str(path)  # a full disk names no place
        raise


def write_record(path: Path, record: RunRecord) -> None:
    """Writes a run's final record and takes the partial one away."""
    write_json(path, record)
    path.with_name(PARTIAL).unlink(missing_ok=True)


RECORD_FILE = Versioned("record", RECORD_SCHEMA, "run the variant again with this version", DataError)
LADDER_FILE = Versioned("ladder", LADDER_SCHEMA, "run the ladder again with this version", DataError)


def record_paths(folder: Path) -> list[Path]:
    """The records below a folder that stand for its variants.

    A ladder's trials only decided what joined, a search's turns what it adopted, and verifying turns what advice is
    worth: none is among them.
    """
    ladders = [folder, *(path.parent for path in folder.rglob(LADDER_NAME))]
    aside = {ladder / name for ladder in ladders for name in (TRIALS, VERIFY, SEARCH)}
    return [path for path in sorted(folder.rglob("record.json")) if aside.isdisjoint(path.parents)]


def read_record(path: Path) -> RunRecord:
    """Reads a record that a worker, or any training loop, wrote; raises DataError, see `read_versioned`."""
    return read_versioned(path, RunRecord, RECORD_FILE)


def read_ladder(path: Path) -> LadderRecord:
    """Reads a ladder; raises DataError, see `read_versioned`."""
    return read_versioned(path, LadderRecord, LADDER_FILE)
