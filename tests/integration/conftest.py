"""Real servers that the integration tests share, and one process that has torch for all that they start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_server import s3_server
from small_disk import small_disk

from laptime.host.starts import warm_starts

__all__ = ["s3_server", "small_disk"]


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    """Starts trainings as a ladder does; single runs and whole commands stand in `tests/e2e`."""
    with warm_starts():
        yield
