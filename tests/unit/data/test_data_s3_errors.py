"""What S3 refuses, as sentences."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, UnauthorizedSSOTokenError

from laptime.data.s3.errors import Explainer
from laptime.errors import DataError, UnreachableError


@pytest.mark.parametrize(
    ("code", "operation", "kind", "sentence"),
    [
        ("NoSuchBucket", "PutObject", DataError, "the bucket 'b' does not exist: make it first"),
        ("404", "HeadObject", DataError, "a file of the data at s3://b/x is missing: push"),
        ("ExpiredToken", "ListObjectsV2", DataError, "has expired: get a new one"),
        ("SignatureDoesNotMatch", "GetObject", DataError, "refuses these credentials (SignatureDoesNotMatch)"),
        ("AccessDenied", "UploadPart", DataError, "may not write there: they need s3:PutObject"),
        ("AccessDenied", "ListMultipartUploads", DataError, "they need s3:ListBucketMultipartUploads"),
        ("403", "HeadObject", DataError, "may not read there: they need s3:GetObject"),
        ("BadDigest", "UploadPart", UnreachableError, "is not what was sent (BadDigest): try again."),
        ("SlowDown", "PutObject", UnreachableError, "fails with SlowDown: try again."),
    ],
)
def test_each_refusal_is_one_sentence(code: str, operation: str, kind: type[DataError], sentence: str) -> None:
    with pytest.raises(DataError) as caught, Explainer("s3://b/x", "b")():
        raise ClientError({"Error": {"Code": code, "Message": "m"}}, operation)
    assert type(caught.value) is kind
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_login_that_is_over() -> None:
    with pytest.raises(DataError, match="has expired: get a new one"), Explainer("s3://b/x", "b")():
        raise UnauthorizedSSOTokenError
