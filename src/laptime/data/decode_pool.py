"""Image files on all cores that this process may use, in blocks that cost about as much, however large the images."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

from laptime.data.ahead import in_order
from laptime.host.processes import allowed_cores, die_with_parent

# A block is at most so many images, files of so many bytes, and so many bytes once it is decoded: a photograph of 24
# megapixels takes as long as 2,000 small images, and several blocks wait for the writer at a time.
_IMAGES, _FILES_BYTES, _DECODED_BYTES = 512, 4 << 20, 32 << 20
# Starting a process costs as much as decoding about this many blocks.
_ALONE = 4

R = TypeVar("R")


def in_blocks(paths: Sequence[str], nbytes: int = 0) -> list[list[str]]:
    """Cuts image files into blocks; `nbytes` are those that one takes once it is decoded, where they are kept."""
    most = max(1, min(_IMAGES, _DECODED_BYTES // max(nbytes, 1)))
    blocks = list[list[str]]()
    room = 0
    for path in paths:
        size = _size(path)
        if not blocks or size > room or len(blocks[-1]) == most:
            blocks.append([])
            room = _FILES_BYTES
        blocks[-1].append(path)
        room -= size
    return blocks


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0  # whoever reads it says what is wrong


def in_pool(work: Callable[[list[str]], R], blocks: Sequence[list[str]]) -> Iterator[R]:
    """What some work makes of each block, in order; few blocks stay in this process."""
    cores = min(allowed_cores(), 8)
    if cores == 1 or len(blocks) <= _ALONE:
        yield from map(work, blocks)
        return
    # Spawned: a fork of a process that has threads (torch, boto3) may never come back.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, context, _start_worker) as pool:
        try:
            # Few blocks ahead of the writer, so that memory does not grow with the data.
            yield from in_order(lambda block: pool.submit(work, block), blocks, 3 * cores)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    die_with_parent()
    # Ctrl-C reaches the whole group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
