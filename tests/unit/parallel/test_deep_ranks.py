"""Ranks' steps in half precision over a net that enlarges rounding: honest ones pass, each fault is refused."""

import json
from pathlib import Path

import pytest
from tests.rank_runs import run_two_ranks
from tests.unit.parallel.deep_ranks import FAULTS, HONEST


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    result = tmp_path_factory.mktemp("ranks") / "result.json"
    run_two_ranks(Path(__file__).with_name("deep_ranks.py"), str(result))
    return json.loads(result.read_text())


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_step_is_right(found, name):
    check = found[name]
    assert check["passed"], check
    if name == "fp32":
        assert check["full_precision"] is None
        return
    assert check["gradient_error"] > check["gradient_tolerance"] == 0.48
    assert check["full_precision"]["gradient_error"] < 0.01
    # A compiler's step is not cut: its layers were compared in half precision.
    assert (check["pieces"] is None) == ("compiled" in name)


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_refused(found, name):
    assert not found[name]["passed"], found[name]


def test_what_ranks_exchange_is_judged_in_fp32_and_half_precision_on_one_process(found):
    for name in ("half a gradient", "nothing exchanged", "a rank's own statistics", "labels"):
        full = found[name]["full_precision"]
        assert full["gradient_error"] > full["gradient_tolerance"]
        assert found[name]["pieces"]["error"] < 0.01
    for name in ("one layer in bf16", "BatchNorm's backward in bf16"):
        assert found[name]["full_precision"]["gradient_error"] < 0.01
        assert found[name]["pieces"]["error"] > found[name]["pieces"]["tolerance"]
    assert found["running statistics not kept"]["statistics_error"] > 0.9


def test_fp32_decides_only_where_something_has_looked_at_half_precision(found):
    check = found["nothing looked at bf16"]
    assert check["gradient_error"] > check["gradient_tolerance"]
    assert (check["full_precision"], check["passed"]) == (None, False)
