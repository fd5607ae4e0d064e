"""Uploads that go on where an earlier one stopped, however it stopped; s3transfer's begin anew.

Two writers never mix: an unfinished upload is joined only where every part that it has is of the same bytes, the
parts are named by their checksums when they are put together, and a condition holds the object that was seen before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from laptime.data.net import Moved
from laptime.data.s3.errors import code_of, is_lost
from laptime.data.s3.parts import SHA256, TRIES, Piece, Target, checksum_of, condition, in_order, pieces_of
from laptime.data.sources import unseen
from laptime.errors import UnreachableError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# An upload by its id, with its parts by number.
Begun = tuple[str, dict[int, dict[str, Any]]]

_MOST_PARTS = 10_000
_STALE = timedelta(days=7)


def upload(target: Target, path: Path, sha256: str, moved: Moved) -> None:
    """Makes an object hold a file, in parts that are kept when it is interrupted.

    Args:
        target: an object whose name stands for its content.
        path: the file.
        sha256: of the file.
        moved: told the bytes of each part, those kept from before too.

    Raises:
        UnreachableError: other writers were first again and again.
    """
    size = path.stat().st_size
    pieces = pieces_of(0, size, max(target.part, -(-size // _MOST_PARTS)))
    for _ in range(TRIES):
        there = target.head()
        if there is not None and (there.size, there.sha256) == (size, sha256):
            return
        seen: Any = condition(there.etag if there else None)
        try:
            if len(pieces) == 1:
                body = path.read_bytes()
                target.client.put_object(
                    **target.at, Body=body, Metadata={SHA256: sha256}, ChecksumSHA256=checksum_of(body), **seen
                )
                moved(size)
            else:
                _in_parts(target, path, pieces, (sha256, seen), moved)
            return
        except ClientError as error:
            # Another writer finished it, or ended the upload that both were at.
            if not is_lost(error) and code_of(error) not in ("NoSuchUpload", "InvalidPart"):
                raise
            moved = unseen
    raise UnreachableError(f"{target.url} is being written by others all the time: try again.")


def _in_parts(target: Target, path: Path, pieces: list[Piece], how: tuple[str, Any], moved: Moved) -> None:
    sha256, seen = how
    upload_id, parts = _unfinished(target, path, pieces) or _new(target, sha256)

    def send(piece: Piece) -> tuple[int, dict[str, Any]]:
        body = _read(path, piece)
        checksum = checksum_of(body)
        said = target.client.upload_part(
            **target.at, UploadId=upload_id, PartNumber=piece.number, Body=body, ChecksumSHA256=checksum
        )
        return piece.size, _named(piece, said["ETag"], checksum)

    moved(sum(p.size for p in pieces if p.number in parts))
    for size, part in in_order(send, [p for p in pieces if p.number not in parts]):
        parts[part["PartNumber"]] = part
        moved(size)
    whole: Any = {"Parts": [parts[p.number] for p in pieces]}
    try:
        target.client.complete_multipart_upload(**target.at, UploadId=upload_id, MultipartUpload=whole, **seen)
    except ClientError as error:
        if is_lost(error):  # nobody will go on with it
            target.client.abort_multipart_upload(**target.at, UploadId=upload_id)
        raise


def _new(target: Target, sha256: str) -> Begun:
    said = target.client.create_multipart_upload(**target.at, ChecksumAlgorithm="SHA256", Metadata={SHA256: sha256})
    return said["UploadId"], {}


def _unfinished(target: Target, path: Path, pieces: list[Piece]) -> Begun | None:
    """The unfinished upload of this very content that is furthest, with its parts by number."""
    found = []
    for said in uploads(target.client, target.bucket, target.key):
        # One of another checksum is another client's, and its parts would be refused.
        if said["Key"] == target.key and said.get("ChecksumAlgorithm", "SHA256") == "SHA256":
            parts = _parts_of(target, said["UploadId"], path, {p.number: p for p in pieces})
            if parts is not None:
                found.append((said["UploadId"], parts))
    return max(found, key=lambda pair: len(pair[1]), default=None)


def _parts_of(target: Target, upload_id: str, path: Path, pieces: dict[int, Piece]) -> dict[int, dict[str, Any]] | None:
    """The parts of an upload; None where one is not what the file holds, or the upload has ended meanwhile."""
    found: dict[int, dict[str, Any]] = {}
    try:
        for page in target.client.get_paginator("list_parts").paginate(**target.at, UploadId=upload_id):
            for said in page.get("Parts", []):
                piece = pieces.get(said["PartNumber"])
                if piece is None or piece.size != said["Size"]:
                    return None
                body = _read(path, piece)
                checksum = checksum_of(body)
                # Servers that list no checksums have the part's MD5 as its ETag.
                known = said.get("ChecksumSHA256")
                if known != checksum if known else said["ETag"].strip('"') != _md5(body):
                    return None
                found[piece.number] = _named(piece, said["ETag"], checksum)
    except ClientError as error:
        if code_of(error) == "NoSuchUpload":
            return None
        raise
    return found


def uploads(client: S3Client, bucket: str, prefix: str) -> Iterator[Any]:
    """Unfinished uploads below a prefix."""
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Uploads", [])


def abort_stale(client: S3Client, bucket: str, prefix: str, now: datetime | None = None) -> int:
    """Ends uploads below a prefix that nobody went on with for a week, whose parts cost money; returns how many."""
    before = (now or datetime.now(UTC)) - _STALE
    stale = [said for said in uploads(client, bucket, prefix) if said["Initiated"] < before]
    for said in stale:
        client.abort_multipart_upload(Bucket=bucket, Key=said["Key"], UploadId=said["UploadId"])
    return len(stale)


def _read(path: Path, piece: Piece) -> bytes:
    with path.open("rb") as file:
        file.seek(piece.start)
        return file.read(piece.size)


def _named(piece: Piece, etag: str, checksum: str) -> dict[str, Any]:
    return {"PartNumber": piece.number, "ETag": etag, "ChecksumSHA256": checksum}


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
