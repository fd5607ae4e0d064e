"""Work in a pool, some items ahead; and signals that reach another thread than the one that waits."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import FrameType

import pytest

from laptime.data.ahead import in_order


class HeardError(Exception):
    """Raised by the handler."""


def test_results_come_in_the_order_of_the_items_and_errors_too() -> None:
    def work(item: int) -> int:
        time.sleep(0.02 if item % 2 else 0.0)
        if item == 7:
            raise ValueError("seven")
        return item

    with ThreadPoolExecutor(3) as pool:
        results = in_order(lambda item: pool.submit(work, item), range(9), 3)
        assert list(islice(results, 7)) == list(range(7))
        with pytest.raises(ValueError, match="seven"):
            next(results)


def test_no_more_items_are_taken_than_may_be_ahead() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(6):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(2) as pool:
        results = in_order(lambda item: pool.submit(int, item), items(), 2)
        assert next(results) == 0
        assert taken == [0, 1]
        assert list(results) == [1, 2, 3, 4, 5]


def test_a_signal_that_another_thread_gets_is_heard() -> None:
    """As the kernel may deliver it: Python's own handler runs in the main thread alone, which nothing has woken."""
    free, ready = threading.Event(), threading.Event()
    workers: list[int] = []
    unheard: list[bool] = []

    def work(_: int) -> None:
        workers.append(threading.get_ident())
        ready.set()
        unheard.append(not free.wait(60))

    def heard(_number: int, _frame: FrameType | None) -> None:
        raise HeardError

    def send() -> None:
        ready.wait(60)
        time.sleep(0.3)  # the main thread waits by now
        signal.pthread_kill(workers[0], signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, heard)
    sender = threading.Thread(target=send)
    try:
        with ThreadPoolExecutor(1) as pool:
            sender.start()
            with pytest.raises(HeardError):
                list(in_order(lambda item: pool.submit(work, item), [0], 1))
            assert unheard == [], "it is heard while the work goes on"
            free.set()
    finally:
        free.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
