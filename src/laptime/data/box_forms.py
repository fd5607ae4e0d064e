"""Which file of a folder says the boxes, and how it is read: a CSV, or COCO's JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from laptime.data.box_coco import coco_names, is_coco, read_coco
from laptime.data.box_columns import HOW
from laptime.data.box_read import Annotated
from laptime.data.boxes import names_of_boxes, read_boxes
from laptime.data.listing import PASSED, leads_back
from laptime.errors import DataError, shorten

# Links to folders are followed as far down as those of class folders are.
_FOLLOWED = 2
# Files whose state is a part of the folder's.
_SAYING = frozenset((".csv", ".json"))
FORMS = "a CSV or COCO's JSON (images, annotations and categories in one file)"
_NONE = (
    "{} holds no boxes in a form that is read: add {}, which CVAT, Label Studio and Roboflow export and "
    "labelme2coco makes of LabelMe's; {}."
)


def find_table(root: Path) -> Path:
    """The one file of boxes in a folder, wherever it lies; raises DataError where there is none or several."""
    tables = _ending(root, ".csv")
    if not any(map(names_of_boxes, tables)):
        tables = [path for path in _ending(root, ".json") if is_coco(path)] or tables
    if not tables:
        raise DataError(_NONE.format(root, FORMS, HOW))
    if len(tables) > 1:
        names = [str(p.relative_to(root)) for p in tables]
        form = "CSV files" if tables[0].suffix.lower() == ".csv" else "JSON files of boxes"
        raise DataError(
            f"{root} holds {len(tables)} {form} ({', '.join(map(shorten, names[:4]))}): name the one that says the "
            f"boxes with --data '{root}#boxes={min(names, key=lambda name: _likely(root, name))}'."
        )
    return tables[0]


def _likely(root: Path, name: str) -> tuple[bool, bool, bool]:
    """Lowest of the file that is meant most likely: one with boxes, that of a training, COCO's own of whole things."""
    is_csv = name.lower().endswith(".csv")
    return (
        is_csv and not names_of_boxes(root / name),
        "train" not in "/".join(Path(name).parts[-2:]).lower(),
        "instances" not in name.lower(),
    )


def read_table(table: Path) -> Annotated:
    """Reads a file of boxes, of the form that its name says; raises DataError with file and place."""
    return read_coco(table) if table.suffix.lower() == ".json" else Annotated(read_boxes(table))


def named_by_others(root: Path, table: Path) -> Iterator[tuple[Path, list[str]]]:
    """The other files of the same form in a folder, and what they call their images; none of one without boxes."""
    suffix = table.suffix.lower() if table.suffix.lower() in _SAYING else ".csv"
    for other in _ending(root, suffix):
        if other != table:
            yield other, coco_names(other) if suffix == ".json" else names_of_boxes(other)


def saying(root: Path) -> list[Path]:
    """The files in a folder that may say boxes or whose an image is; raises DataError."""
    return sorted(p for p in files(root) if p.suffix.lower() in _SAYING)


def _ending(root: Path, suffix: str) -> list[Path]:
    return sorted(p for p in files(root) if p.suffix.lower() == suffix)


def files(root: Path) -> Iterator[Path]:
    """The files below a folder, without hidden ones and links that lead nowhere; raises DataError."""

    def refuse(error: OSError) -> NoReturn:
        raise DataError(f"{error.filename} can't be read ({error.strerror}): check it.") from error

    for folder, folders, names in os.walk(root, onerror=refuse, followlinks=True):
        deep = len(Path(folder).relative_to(root).parts) >= _FOLLOWED
        folders[:] = [n for n in folders if not n.startswith(PASSED) and not _left(Path(folder, n), deep)]
        for path in (Path(folder, name) for name in names if not name.startswith(PASSED)):
            try:
                if path.is_file():
                    yield path
            except OSError as error:
                refuse(error)


def _left(folder: Path, deep: bool) -> bool:
    """Whether a link to a folder is not followed."""
    return folder.is_symlink() and (deep or leads_back(folder))
