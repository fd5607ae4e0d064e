"""S3: the only importer of boto3."""

from laptime.data.s3.place import S3Place

__all__ = ["S3Place"]
