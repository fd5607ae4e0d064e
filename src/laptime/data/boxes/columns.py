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
    "filename": (
        "image",
        "imageid",
        "imagename",
        "imagepath",
        "img",
        "file",
        "path",
        "filepath",
        "imagefilename",
        "sourceref",
    ),
    "class": (
        "label",
        "labels",
        "labelname",
        "name",
        "category",
        "classname",
        "object",
        "objectclass",
        "target",
        "classid",
        "categoryid",
        "labelid",
        "cls",
    ),
    "xmin": ("x1", "left", "bboxxmin", "bboxx1", "xleft", "x0", "xtl"),
    "ymin": ("y1", "top", "bboxymin", "bboxy1", "ytop", "y0", "ytl"),
    "xmax": ("x2", "right", "bboxxmax", "bboxx2", "xright", "xbr"),
    "ymax": ("y2", "bottom", "bboxymax", "bboxy2", "ybottom", "ybr"),
}
# What is called so with width and height is one corner of a box.
_CORNERS = (("x", "y"), ("left", "top"), ("xmin", "ymin"), ("bboxx", "bboxy"))


def no_column(path: Path, missing: Sequence[str], head: Sequence[str]) -> DataError:
    """The error of columns that aren't there, are behind a separator that is no comma, or are called otherwise.

    Args:
        path: the CSV.
        missing: the columns, in order.
        head: the columns that are there.
    """
    text = ",".join(head)
    if not text.strip():
        return DataError(f"{path} is empty: {HOW}.")
    if any(name.strip().replace(".", "", 1).isdigit() for name in head):
        return DataError(f"{path} begins without names of its columns ({shorten(text, 100)}): write them above; {HOW}.")
    for sign, name in _SEPARATORS.items():
        if {part.strip(' "') for part in text.split(sign)} >= set(COLUMNS):
            return DataError(f"{path} separates its columns by {name}: write commas between them, points in numbers.")
    known = {_plain(name): name for name in reversed(head)}
    others = {name: [known[n] for n in (name, *_ELSEWHERE[name]) if n in known] for name in missing}
    far = [others.get(name, [name]) for name in ("xmax", "ymax")]
    if "bbox" in known and not any(far):
        return DataError(
            f"{path} says a box in one column, {shorten(known['bbox'])!r}: write each number into its own; {HOW}."
        )
    if not any(far) and any({*c, "width", "height"} <= known.keys() for c in _CORNERS):
        return DataError(
            f"{path} says a corner, a width and a height: write xmin, ymin and, with these added, xmax, ymax; {HOW}."
        )
    lacks = f"{path} has no column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
    renames = [f"{shorten(found[0])!r} to {name}" for name, found in others.items() if found]
    if renames:
        return DataError(f"{lacks}: rename {', '.join(renames)}, if that is meant; {HOW}.")
    return DataError(f"{lacks} in its first line ({shorten(text, 100)}): {HOW}.")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(" ", "").replace("-", "").replace(".", "")
