"""Objects in parts: what an upload and a download share."""

from __future__ import annotations

import base64
import hashlib
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from laptime.data import ahead
from laptime.data.s3.errors import BROKEN_BODY, is_missing

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

# Parts on their way at once take PART * THREADS of memory.
PART = 16 * 2**20
TRIES = 4
SHA256 = "sha256"
_THREADS = 4
THREAD_NAME = "laptime-s3"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Found:
    """What a bucket says about an object.

    Attributes:
        sha256: of the whole, as its writer noted it; a multipart object's own checksum is one over parts.
    """

    etag: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Piece:
    """One part of a file: its number from 1 and where it lies, in bytes."""

    number: int
    start: int
    size: int


@dataclass(frozen=True)
class Target:
    """An object by bucket and key, through a client."""

    client: S3Client
    bucket: str
    key: str
    part: int = PART

    @property
    def url(self) -> str:
        """For messages."""
        return f"s3://{self.bucket}/{self.key}"

    @property
    def at(self) -> Any:
        """Bucket and key, as every call takes them."""
        return {"Bucket": self.bucket, "Key": self.key}

    def head(self) -> Found | None:
        """Looks at the object; None where there is none."""
        try:
            said = self.client.head_object(**self.at)
        except ClientError as error:
            if is_missing(error):
                return None
            raise
        return Found(said["ETag"], said["ContentLength"], said.get("Metadata", {}).get(SHA256, ""))


def condition(seen: str | None) -> Any:
    """Writes only while the object is the one with this ETag, None for no object."""
    return {"IfMatch": seen} if seen else {"IfNoneMatch": "*"}


def body_of(ask: Callable[[], Any], sleep: Callable[[float], None] = time.sleep) -> bytes:
    """Reads a reply's body, asking again where it breaks off: after up to 0.5, 1 and 2 s, at random."""
    for attempt in range(1, TRIES):
        body = ask()
        try:
            return bytes(body.read())
        except BROKEN_BODY:
            sleep(random.uniform(0, 2**attempt / 4))  # noqa: S311  (so that many clients don't come back at once)
    return bytes(ask().read())


def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Maps in threads, no more items ahead than there are threads; results in the order of the items.

    Left early, it does not wait for what is on its way.
    """
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=THREAD_NAME)
    try:
        yield from ahead.in_order(lambda item: pool.submit(work, item), items, _THREADS)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def pieces_of(start: int, size: int, part: int) -> list[Piece]:
    """Cuts what lies between two offsets in bytes into parts."""
    return [Piece(n, at, min(part, size - at)) for n, at in enumerate(range(start, size, part), 1)]


def checksum_of(body: bytes) -> str:
    """SHA-256 as S3 writes it."""
    return base64.b64encode(hashlib.sha256(body).digest()).decode()
