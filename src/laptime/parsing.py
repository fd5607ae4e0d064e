"""JSON that somebody else may have written: whatever is wrong with it is a ValueError, as with a syntax error."""

from __future__ import annotations

import json
from typing import Any

from laptime.errors import shorten

# No count of ours has more; beyond 2**63 numpy and SQLite refuse, and beyond 1e308 a float does.
_DIGITS = 18


def parse_json(text: str | bytes) -> Any:
    """Reads JSON in UTF-8; a byte order mark, as editors on Windows write it, is passed over.

    Infinity and NaN are read as Python writes them: the loss of a diverged training is one.

    Raises:
        ValueError: it is none, is of another encoding, is nested too deep, or holds half a character (a lone
            surrogate) or a whole number of more than 18 digits.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        found = json.loads(text.removeprefix("\ufeff"), parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if "\\u" in text:
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half a character") from None
    return found


def other_schema(found: object, reads: str, remedy: str) -> str:
    """What to say, behind its name, of a file that is of another version than this one reads.

    Args:
        found: its schema, or whatever stands in its place.
        reads: the schema that this version reads, `laptime.record/1`.
        remedy: what else to do.
    """
    name, _, number = reads.rpartition("/")
    family, _, given = str(found).rpartition("/")
    if found is None:
        return f"names no schema, where this version reads {reads!r}: {remedy}."
    schema = f"schema {shorten(str(found))!r}, this version reads {reads!r}"
    if family == name and given.isascii() and given.isdigit() and int(given[:9]) > int(number):
        return f"was written by a newer laptime ({schema}): upgrade laptime to read it, or {remedy}."
    if family.startswith("laptime.") and family != name:
        return f"is a file of another kind ({schema}): give the one that is asked for."
    return f"has {schema}: {remedy}."


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS + digits.startswith("-"):
        raise ValueError(f"the number {digits[:12]}… is too large")
    return int(digits)
