"""A weight that has a gradient on one rank alone (an expert, a block left out at random) is averaged with itself."""

from pathlib import Path

from tests.rank_runs import run_two_ranks


def test_a_flat_reduce_of_ranks_that_reach_other_weights_is_that_of_one_process():
    run_two_ranks(Path(__file__).with_name("absent_ranks.py"), PYTHONWARNINGS="error")
