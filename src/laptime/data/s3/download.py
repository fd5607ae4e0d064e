"""Downloads in parts that go on from what is there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from botocore.exceptions import ClientError

from laptime.data.net import Moved
from laptime.data.resume import kept_bytes, note_tag
from laptime.data.s3.errors import is_lost
from laptime.data.s3.parts import TRIES, Piece, Target, body_of, in_order, pieces_of
from laptime.data.sources import unseen
from laptime.errors import DataError, UnreachableError


def download(target: Target, to: Path, size: int, moved: Moved) -> None:
    """Downloads an object of `size` bytes, going on from what `to` holds of the same object.

    Raises:
        DataError: the object has another size.
        UnreachableError: it was replaced again and again meanwhile.
    """
    for _ in range(TRIES):
        said = target.client.head_object(**target.at)
        etag, found = said["ETag"], said["ContentLength"]
        if found != size:
            raise DataError(f"{target.url} has {found} bytes and should have {size}: push the data there again.")
        kept = kept_bytes(to, size, etag)
        note_tag(to, etag)
        try:
            moved(kept)
            with to.open("ab" if kept else "wb") as file:
                # In order, so that the file's length says what is there.
                for block in in_order(partial(_get, target, etag), pieces_of(kept, size, target.part)):
                    file.write(block)
                    moved(len(block))
            return
        except ClientError as error:
            if not is_lost(error):
                raise
            moved = unseen
    raise UnreachableError(f"{target.url} is replaced all the time: try again.")


def _get(target: Target, etag: str, piece: Piece) -> bytes:
    last = piece.start + piece.size - 1
    return body_of(
        lambda: target.client.get_object(**target.at, Range=f"bytes={piece.start}-{last}", IfMatch=etag)["Body"]
    )
