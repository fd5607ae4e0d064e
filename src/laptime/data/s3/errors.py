"""What S3 refuses, in one sentence each; the clients' errors end here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from boto3.exceptions import Boto3Error
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  (botocore's, the base of all that means nobody answered)
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from laptime.errors import DataError, UnreachableError, shorten

# A body that broke off: botocore retries requests, and a body is read after them.
BROKEN_BODY = (HTTPClientError, IncompleteReadError)

_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, ProfileNotFound)
_LOGIN_OVER = (TokenRetrievalError, UnauthorizedSSOTokenError)
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_UNKNOWN = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken")
_FORBIDDEN = ("AccessDenied", "403", "Forbidden", "AllAccessDisabled")
_MISSING = ("NoSuchKey", "404", "NotFound")
_WRITES = ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload")
_LISTS = ("ListParts", "ListMultipartUploads")


def code_of(error: ClientError) -> str:
    """S3's name of an error, or the status where a reply has no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_missing(error: ClientError) -> bool:
    """No such object."""
    return code_of(error) in _MISSING


def is_unsupported(error: ClientError) -> bool:
    """A server that has no such request, or no conditions on one."""
    return code_of(error) in ("NotImplemented", "501")


def is_lost(error: ClientError) -> bool:
    """A condition that did not hold: another writer was there first."""
    return code_of(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict", "409")


@dataclass(frozen=True)
class Explainer:
    """Errors of one place.

    Attributes:
        url: the place as the user wrote it.
        bucket: its bucket.
    """

    url: str
    bucket: str

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Turns boto3's errors inside the block into ours.

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
        except _LOGIN_OVER as error:
            raise self._expired() from error
        except ClientError as error:
            raise self._refusal(error) from error
        except (ConnectionError, HTTPClientError) as error:
            raise UnreachableError(
                f"{self.url} can't be reached ({shorten(str(error))}): check AWS_ENDPOINT_URL and the network."
            ) from error
        except (BotoCoreError, Boto3Error) as error:
            cause = error.__context__
            if isinstance(cause, ClientError):
                raise self._refusal(cause) from error
            raise UnreachableError(f"{self.url} can't be used ({shorten(str(error))}): try again.") from error

    def _refusal(self, error: ClientError) -> DataError:
        code, operation = code_of(error), error.operation_name
        if code == "NoSuchBucket":
            return DataError(
                f"the bucket {self.bucket!r} does not exist: make it first, or check s3://bucket/prefix "
                "and AWS_ENDPOINT_URL."
            )
        if code in _MISSING:
            return DataError(f"a file of the data at {self.url} is missing: push the data there again.")
        if code in _EXPIRED:
            return self._expired()
        if code in _UNKNOWN:
            return DataError(
                f"{self.url} refuses these credentials ({code}): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
                "AWS_SESSION_TOKEN and AWS_PROFILE."
            )
        if code in _FORBIDDEN:
            return DataError(_forbidden(self.url, code, operation))
        if code == "BadDigest":
            return UnreachableError(f"what {self.url} received is not what was sent ({code}): try again.")
        return UnreachableError(f"{self.url} fails with {shorten(code)}: try again.")

    def _expired(self) -> DataError:
        return DataError(
            f"the session token for {self.url} has expired: get a new one (aws sso login, or whatever gave it)."
        )


def _forbidden(url: str, code: str, operation: str) -> str:
    if operation in _WRITES:
        rights = "write there: they need s3:PutObject and s3:AbortMultipartUpload on it"
    elif operation in _LISTS:
        rights = (
            "look for unfinished uploads there: they need s3:ListBucketMultipartUploads and s3:ListMultipartUploadParts"
        )
    else:
        rights = "read there: they need s3:GetObject and s3:ListBucket on it, or are wrong"
    return f"{url} refuses with {code}: these credentials may not {rights}."
