"""Real servers that the integration tests share."""

from __future__ import annotations

from s3_server import s3_server
from small_disk import small_disk

__all__ = ["s3_server", "small_disk"]
