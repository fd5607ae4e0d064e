"""Bad inputs made of a good one: cut off, bent, of another encoding, of other types, absurdly large or deep."""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections.abc import Iterator
from typing import Any

Named = tuple[str, bytes]

# What stands in the place of a value: JSON, since Python has no word for a number of 400 digits or half a character.
_WRONG = (
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "-1e999",
    "NaN",
    "-0.5",
    "9" * 400,
    "9" * 5000,
    "1e308",
    '""',
    '"x"',
    '"' + "n" * 10_000 + '"',
    '"\\ud800"',
    '"<script>|\\u001b[31m\\u202e\\n\\u0000"',
    '"../../etc/passwd"',
    "[]",
    "{}",
    "[[[[]]]]",
    '{"\\u001b[31m\\n": 1}',
)
_CUTS, _FLIPS = 6, 8
_DEEP = 100_000


def of_json(text: str, name: str, changes: int = 84) -> Iterator[Named]:
    """Bad inputs of a JSON document: all that `of_bytes` makes, and values of other types in drawn places.

    Args:
        text: a good document.
        name: draws the places; the same for the same name.
        changes: how many values are replaced.
    """
    drawn = random.Random(zlib.crc32(name.encode()))
    yield from of_bytes(text.encode(), name)
    yield from _as_text(text)
    document = json.loads(text)
    places = list(_places(document))
    for number in range(changes):
        wrong = _WRONG[number % len(_WRONG)]
        place = drawn.choice(places)
        yield f"{'.'.join(map(str, place))} is {wrong[:20]}", _with(document, place, wrong).encode()
    for place in drawn.sample(places, min(len(places), 6)):
        yield f"without {'.'.join(map(str, place))}", _without(document, place).encode()


def of_bytes(body: bytes, name: str) -> Iterator[Named]:
    """Bad inputs of any file: empty, cut off at drawn places, flipped bits, other things in its place."""
    drawn = random.Random(zlib.crc32(name.encode()) + 1)
    yield "empty", b""
    yield "blanks", b" \n" * 100
    yield "zeros", bytes(4096)
    yield "garbage", drawn.randbytes(4096)
    for _ in range(_CUTS):
        at = drawn.randrange(1, max(2, len(body) - 1))
        yield f"cut off after {at} bytes", body[:at]
    for _ in range(_FLIPS):
        flipped = bytearray(body)
        at = drawn.randrange(len(flipped))
        flipped[at] ^= 1 << drawn.randrange(8)
        yield f"a bit flipped in byte {at}", bytes(flipped)
    yield "twice", body + body
    yield "an end of garbage", body + drawn.randbytes(64)


def _as_text(text: str) -> Iterator[Named]:
    """What only text can be: of other encodings, nested too deep, keys twice, packed."""
    yield "a byte order mark", text.encode("utf-8-sig")
    yield "UTF-16", text.encode("utf-16")
    yield "Latin-1", text.replace("a", "\xe9").encode("latin-1", "replace")
    yield "deep lists", b"[" * _DEEP
    yield "deep objects", b'{"a":' * _DEEP
    yield "a deep value", re.sub(r'(:\s*)("[^"]*"|[0-9.]+)', r"\1" + "[" * _DEEP, text, count=1).encode()
    yield "a number of 10,000 digits", b"1" * 10_000
    yield "a list", b"[]"
    yield "nothing", b"null"
    yield "a text", b'"laptime"'
    yield "a NUL inside", text.replace(" ", "\0", 1).encode()
    yield "keys twice", re.sub(r'("[^"]+"):', r"\1: null, \1:", text, count=3).encode()
    yield "packed", gzip.compress(text.encode())
    for at in [m.end() for m in re.finditer(r"[{\[:,]", text)][:60:10]:
        yield f"cut off behind {text[at - 1]} at {at}", text[:at].encode()


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*above, key)
        yield from _places(inner, (*above, key))


def _with(document: Any, place: tuple[Any, ...], wrong: str) -> str:
    mark = "the one place that is replaced"
    changed = json.loads(json.dumps(document))
    _holder(changed, place)[place[-1]] = mark
    return json.dumps(changed).replace(json.dumps(mark), wrong)


def _without(document: Any, place: tuple[Any, ...]) -> str:
    changed = json.loads(json.dumps(document))
    del _holder(changed, place)[place[-1]]
    return json.dumps(changed)


def _holder(document: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        document = document[key]
    return document


def of_lines(text: str, name: str) -> Iterator[Named]:
    """Bad inputs of a file of JSON lines: of the whole, and of each of the first lines."""
    yield from of_bytes(text.encode(), name)
    lines = text.splitlines()
    for number, line in enumerate(lines[:4]):
        for what, body in of_json(line, f"{name} {number}", 21):
            before, after = lines[:number], lines[number + 1 :]
            yield (
                f"line {number}: {what}",
                b"\n".join([*(x.encode() for x in before), body, *(x.encode() for x in after), b""]),
            )
    yield "no first line", "\n".join([*lines[1:], ""]).encode()
    yield "other line ends", text.replace("\n", "\r\n").encode()
