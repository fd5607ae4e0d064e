"""Tuned DDP in bf16 on two gloo ranks learns as it does in fp32."""

import json
from pathlib import Path

import pytest
from tests.rank_runs import run_two_ranks


@pytest.mark.bf16
def test_tuned_ranks_in_bf16_keep_within_one_percent_of_the_losses_in_fp32(tmp_path):
    result = tmp_path / "result.json"
    run_two_ranks(Path(__file__).with_name("bf16_ranks.py"), str(result), PYTHONWARNINGS="error")
    whole, *others = json.loads(result.read_text()).values()
    assert whole[-1] < 0.97 * whole[0]
    for losses in others:
        assert losses == pytest.approx(whole, rel=0.01)
        assert losses != whole
