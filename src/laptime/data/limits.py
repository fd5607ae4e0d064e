"""Whether the data has what a limit asks for; neither torch nor numpy, so that a plan is checked at once."""

from __future__ import annotations

from laptime.errors import UsageError
from laptime.spec import DataSpec


def check_limits(data: DataSpec, limit_train: int | None, limit_test: int | None) -> None:
    """Refuses limits that the data can't give.

    Raises:
        UsageError: a limit below 1 or beyond the samples that there are, naming both numbers.
    """
    check_limit("train", data.train_count, limit_train)
    check_limit("test", data.test_count, limit_test)


def check_drawn(data: DataSpec, limit_train: int | None) -> None:
    """Refuses a limit that keeps nothing that is drawn, all of the weight 0; raises UsageError."""
    least = data.own.least_limit if data.own else 1
    if limit_train is not None and limit_train < least:
        raise UsageError(
            f"all {limit_train} training samples that --limit-train keeps have the weight 0: give at least {least}."
        )


def check_limit(split: str, count: int, limit: int | None) -> None:
    """Refuses one limit; `count` samples are there."""
    if limit is None:
        return
    if limit < 1:
        raise UsageError(f"--limit-{split} {limit} leaves no samples: give 1 to {count}, or leave it out for all.")
    if limit > count:
        raise UsageError(
            f"--limit-{split} {limit} is more than the {count} {split} samples that there are: "
            f"give at most {count}, or leave it out for all."
        )
