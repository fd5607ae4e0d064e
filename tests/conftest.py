"""What holds for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    """Puts back what process-wide optimizations set, for tests that run them in this process."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_flush_denormal(False)
