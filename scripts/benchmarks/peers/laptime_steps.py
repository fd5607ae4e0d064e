"""laptime's own worker, whose steps wait for their turn: python laptime_steps.py SPEC.json RECORD.json."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from turns import wait_for_turn

from laptime.host.processes import die_with_parent
from laptime.optimizations import data
from laptime.worker import main

_batches = data.EpochBatches.__iter__


def _in_turn(self: data.EpochBatches) -> Iterator[list[int]]:
    for step, batch in enumerate(_batches(self)):
        wait_for_turn(self.epoch, step)
        yield batch


if __name__ == "__main__":
    die_with_parent()
    data.EpochBatches.__iter__ = _in_turn  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
