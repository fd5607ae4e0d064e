"""NCCL waits for recordings that hold its exchanges when a group ends: by then there must be none."""

from pathlib import Path

from tests.rank_runs import run_two_ranks


def test_recordings_are_gone_before_the_group_of_the_ranks_ends():
    run_two_ranks(Path(__file__).with_name("recorded_ranks.py"), PYTHONWARNINGS="error")
