"""A mirror in an S3 bucket: the only importer of boto3."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  (botocore's, the base of all that means nobody answered)
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from laptime.data.net import Moved
from laptime.errors import DataError, UnreachableError, UsageError, shorten

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, ProfileNotFound)
_REFUSED = (
    "AccessDenied",
    "403",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
)
_MISSING = ("NoSuchKey", "404", "NotFound")


def _config() -> Config:
    return Config(connect_timeout=3, read_timeout=30, retries={"total_max_attempts": 4, "mode": "standard"})


class S3Place:
    """`s3://bucket/prefix`; endpoint and credentials by boto3's usual chain (AWS_ENDPOINT_URL, ...)."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if not parts.netloc:
            raise UsageError(f"{shorten(url)!r} names no bucket: write s3://bucket/prefix.")
        self.url = url.rstrip("/")
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
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

    def read(self, name: str) -> bytes | None:
        """Reads a small object; None where there is none."""
        with self._explained():
            try:
                return self._client().get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read()
            except ClientError as error:
                if _code(error) in _MISSING:
                    return None
                raise

    def download(self, name: str, to: Path, size: int, moved: Moved) -> None:
        """Downloads an object of `size` bytes."""
        with self._explained():
            found = self._client().head_object(Bucket=self._bucket, Key=self._key(name))["ContentLength"]
            if found != size:
                raise DataError(
                    f"{self.url}/{name} has {found} bytes and should have {size}: push the data there again."
                )
            self._client().download_file(self._bucket, self._key(name), str(to), Callback=moved)

    def upload(self, path: Path, name: str, moved: Moved) -> None:
        """Uploads a file, whole or not at all."""
        with self._explained():
            self._client().upload_file(str(path), self._bucket, self._key(name), Callback=moved)

    def write(self, body: bytes, name: str) -> None:
        """Writes a small object."""
        with self._explained():
            self._client().put_object(Bucket=self._bucket, Key=self._key(name), Body=body)

    def check(self) -> None:
        """Finds out at once whether the bucket is there and the credentials do."""
        with self._explained():
            self._client().head_bucket(Bucket=self._bucket)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _client(self) -> S3Client:
        if self._made is None:
            # A session of its own: the module's default one keeps the first credentials that it found.
            self._made = boto3.Session().client("s3", config=_config())
        return self._made

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns boto3's errors into ours.

        Raises:
            UnreachableError: the endpoint does not answer or fails.
            DataError: no such bucket, no credentials, not allowed.
        """
        try:
            yield
        except _CREDENTIALS as error:
            raise DataError(
                f"there are no credentials for {self.url}: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
            ) from error
        except ClientError as error:
            raise self._refusal(error) from error
        except (ConnectionError, HTTPClientError) as error:
            raise UnreachableError(f"{self.url} can't be reached ({shorten(str(error))}).") from error
        except (BotoCoreError, Boto3Error) as error:
            cause = error.__context__
            if isinstance(cause, ClientError):
                raise self._refusal(cause) from error
            raise UnreachableError(f"{self.url} can't be used ({shorten(str(error))}): try again.") from error

    def _refusal(self, error: ClientError) -> DataError:
        code = _code(error)
        if code == "NoSuchBucket" or (code in _MISSING and error.operation_name == "HeadBucket"):
            return DataError(
                f"the bucket {self._bucket!r} does not exist: make it first, or check s3://bucket/prefix "
                "and AWS_ENDPOINT_URL."
            )
        if code in _MISSING:
            return DataError(f"a file of the data at {self.url} is missing: push the data there again.")
        if code in _REFUSED:
            return DataError(
                f"{self.url} refuses these credentials ({code}): check the AWS_* variables and the rights."
            )
        return UnreachableError(f"{self.url} fails with {shorten(code)}: try again.")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
