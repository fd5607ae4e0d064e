"""The columns of a CSV of boxes, and what is said where one isn't there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laptime.errors import DataError, shorten

COLUMNS = ("filename", "class", "xmin", "ymin", "xmax", "ymax")
HOW = f"a CSV of boxes has the columns {', '.join(COLUMNS)}, and others as you like"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
# What other tools call them, without blanks, underscores and capitals.
_ELSEWHERE = {
    "filename": ("image", "imageid", "imagename", "imagepath", "img", "file", "path", "filepath", "imagefilename"),
    "class": ("label", "labels", "labelname", "name", "category", "classname", "object", "objectclass", "target"),
    "xmin": ("x1", "left", "bboxxmin", "bboxx1", "xleft", "x0"),
    "ymin": ("y1", "top", "bboxymin", "bboxy1", "ytop", "y0"),
    "xmax": ("x2", "right", "bboxxmax", "bboxx2", "xright"),
    "ymax": ("y2", "bottom", "bboxymax", "bboxy2", "ybottom"),
}


def no_column(path: Path, missing: str, head: Sequence[str]) -> DataError:
    """The error of a column that isn't there, is behind a separator that is no comma, or is called otherwise.

    Args:
        path: the CSV.
        missing: the column.
        head: the columns that are there.
    """
    text = ",".join(head)
    for sign, name in _SEPARATORS.items():
        if {part.strip(' "') for part in text.split(sign)} >= set(COLUMNS):
            return DataError(f"{path} separates its columns by {name}: write commas between them, points in numbers.")
    if missing in text.lower().split(","):
        return DataError(f"{path} has the column {missing!r} in capitals: write it small; {HOW}.")
    known = {_plain(name): name for name in reversed(head)}
    other = next((known[name] for name in (missing, *_ELSEWHERE[missing]) if name in known), None)
    if other is not None:
        return DataError(f"{path} has no column {missing!r}: rename {shorten(other)!r}, if it is that; {HOW}.")
    return DataError(f"{path} has no column {missing!r} in its first line ({shorten(text, 100)}): {HOW}.")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(" ", "").replace("-", "").replace(".", "")
