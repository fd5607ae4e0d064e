"""Makes the buckets that its arguments name; one that is there already is left as it is.

Endpoint and credentials come from AWS's usual variables.
"""

import contextlib
import sys

import boto3
from botocore.config import Config

# The S3 server may still be starting: about a minute of attempts, and the Job itself tries again.
s3 = boto3.client("s3", config=Config(connect_timeout=5, retries={"mode": "standard", "total_max_attempts": 8}))
for bucket in sys.argv[1:]:
    with contextlib.suppress(s3.exceptions.BucketAlreadyOwnedByYou):
        s3.create_bucket(Bucket=bucket)
    sys.stdout.write(f"{bucket} is there.\n")
