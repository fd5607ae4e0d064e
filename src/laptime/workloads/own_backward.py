"""Which line of the user's own forward pass an error in backward comes from."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from laptime.own.user_code import stack_in


def forward_behind(again: Callable[[], None]) -> list[tuple[Path, int]]:
    """Lines of the forward pass whose operation fails in backward, by torch's anomaly detection; the innermost last.

    Args:
        again: goes forward and back once more, and fails as before.
    """
    with warnings.catch_warnings(record=True) as said, torch.autograd.set_detect_anomaly(True, check_nan=False):
        warnings.simplefilter("always")
        with suppress(Exception, SystemExit):  # it is told already
            again()
    told = next((str(w.message) for w in said if "Traceback of forward call" in str(w.message)), "")
    return stack_in(told)[::-1]
