"""A place in an S3 bucket."""

from __future__ import annotations

import io
import os
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from laptime.data.net import Moved
from laptime.data.s3.download import download
from laptime.data.s3.errors import Explainer, is_lost, is_missing, is_unsupported
from laptime.data.s3.parts import PART, Target, body_of, condition
from laptime.data.s3.upload import abort_stale, upload
from laptime.errors import DataError, UsageError, shorten

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def _config() -> Config:
    # botocore's own retries: with backoff and jitter, of what may heal (no answer, 5xx, too many requests).
    retries: Any = {"mode": "standard"}
    if not os.environ.get("AWS_MAX_ATTEMPTS"):
        retries["total_max_attempts"] = 5
    return Config(connect_timeout=3, read_timeout=30, retries=retries)


class S3Place:
    """`s3://bucket/prefix`; endpoint and credentials by boto3's usual chain (AWS_ENDPOINT_URL, ...).

    Args:
        url: the address.
        part: bytes of a part of a large object; S3 takes no smaller ones than 5 MiB.
    """

    def __init__(self, url: str, part: int = PART) -> None:
        parts = urllib.parse.urlsplit(url)
        if not parts.netloc:
            raise UsageError(f"{shorten(url)!r} names no bucket: write s3://bucket/prefix.")
        self.url = url.rstrip("/")
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._part = part
        self._explained = Explainer(self.url, self._bucket)
        self._made: S3Client | None = None

    @property
    def endpoint(self) -> str:
        """The address to probe, found without credentials: looking for those may wait for the network."""
        try:
            probe = boto3.Session().client("s3", config=_config(), aws_access_key_id="-", aws_secret_access_key="-")  # noqa: S106
        except (BotoCoreError, ValueError) as error:
            raise DataError(
                f"the S3 settings can't be used ({error}): check AWS_ENDPOINT_URL and AWS_PROFILE."
            ) from error
        return probe.meta.endpoint_url

    def check(self) -> None:
        """Finds out at once whether the bucket is there and the credentials do."""
        with self._explained():
            # A HEAD would be refused without a reason, since its reply has no body.
            self._client().list_objects_v2(Bucket=self._bucket, Prefix=self._key(""), MaxKeys=1)

    def read(self, name: str) -> bytes | None:
        """Reads an object into memory; None where there is none."""
        return self.seen(name)[0]

    def seen(self, name: str) -> tuple[bytes | None, str | None]:
        """Reads an object with its ETag, for `swap`; None for both where there is none."""
        target, etags = self._target(name), [""]

        def ask() -> object:
            said = target.client.get_object(**target.at)
            etags.append(said["ETag"])
            return said["Body"]

        with self._explained():
            try:
                return body_of(ask), etags[-1]
            except ClientError as error:
                if is_missing(error):
                    return None, None
                raise

    def write(self, body: bytes, name: str) -> None:
        """Writes an object, whole or not at all, whatever was there."""
        target = self._target(name)
        with self._explained():
            target.client.upload_fileobj(
                io.BytesIO(body), target.bucket, target.key, ExtraArgs={"ChecksumAlgorithm": "SHA256"}
            )

    def swap(self, body: bytes, name: str, etag: str | None) -> bool:
        """Writes a small object while it is still the one with this ETag (None: while there is none).

        Returns:
            False where another writer was first, with something else.
        """
        target = self._target(name)
        with self._explained():
            try:
                target.client.put_object(**target.at, Body=body, ChecksumAlgorithm="SHA256", **condition(etag))
            except ClientError as error:
                if is_unsupported(error):  # looked at and then written, as in a folder
                    if self.seen(name)[1] != etag:
                        return False
                    self.write(body, name)
                    return True
                if not is_lost(error):
                    raise
                # A retry of our own finds what it wrote before the answer was lost.
                return self.read(name) == body
        return True

    def holds(self, name: str, size: int, sha256: str) -> bool:
        """Whether an object is there that `upload` wrote from such a file."""
        with self._explained():
            found = self._target(name).head()
        return found is not None and (found.size, found.sha256) == (size, sha256)

    def upload(self, path: Path, name: str, sha256: str, moved: Moved) -> None:
        """Makes an object hold a file, going on from what an interrupted upload of it left; seen only when whole.

        Args:
            path: the file.
            name: one that stands for this content: what else is found there is damaged, and is replaced.
            sha256: of the file.
            moved: told the bytes of each part, those kept from before too.
        """
        with self._explained():
            upload(self._target(name), path, sha256, moved)

    def download(self, name: str, to: Path, size: int, moved: Moved) -> None:
        """Downloads an object of `size` bytes, going on from what `to` holds of it."""
        with self._explained():
            download(self._target(name), to, size, moved)

    def abort_stale(self, prefix: str) -> None:
        """Ends uploads below a prefix that nobody went on with for a week."""
        with self._explained():
            abort_stale(self._client(), self._bucket, self._key(prefix))

    def _target(self, name: str) -> Target:
        with self._explained():
            return Target(self._client(), self._bucket, self._key(name), self._part)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _client(self) -> S3Client:
        if self._made is None:
            # A session of its own: the module's default one keeps the first credentials that it found.
            self._made = boto3.Session().client("s3", config=_config())
        return self._made
