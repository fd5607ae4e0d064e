"""What moves objects in parts, without a server."""

from __future__ import annotations

import time

import pytest
from botocore.exceptions import HTTPClientError

from laptime.data.s3.parts import body_of, in_order


def test_a_body_that_breaks_off_is_asked_for_again_with_growing_pauses() -> None:
    class Body:
        def read(self) -> bytes:
            raise HTTPClientError(error="broken")

    pauses: list[float] = []
    with pytest.raises(HTTPClientError):
        body_of(Body, pauses.append)
    assert len(pauses) == 3
    assert all(pause <= limit for pause, limit in zip(pauses, (0.5, 1.0, 2.0), strict=True))


def test_results_come_in_order_and_few_items_are_ahead() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.02 if item % 2 else 0.0)
        return item

    results = in_order(work, iter(range(100)))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    results.close()  # type: ignore[attr-defined]
    time.sleep(0.1)
    assert len(begun) <= 8
