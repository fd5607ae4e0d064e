"""Two gloo ranks against one process, in float64: exact where BatchNorm is synchronized, near where it is local."""

import json
from pathlib import Path

import pytest
from tests.rank_runs import run_two_ranks


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    result = tmp_path_factory.mktemp("ranks") / "result.json"
    run_two_ranks(Path(__file__).with_name("two_ranks.py"), str(result), PYTHONWARNINGS="error")
    return json.loads(result.read_text())


@pytest.mark.parametrize("name", ["ddp sync", "tuned sync", "flat sync", "ddp local, no BatchNorm"])
def test_the_same_global_batches_give_the_losses_of_one_process(found, name):
    ranks, one = found[name]
    for mine, theirs in zip(ranks["epochs"], one["epochs"], strict=True):
        assert mine[0] == pytest.approx(theirs[0], rel=1e-9)
        assert mine[1] == theirs[1]
    assert ranks["weights"] == pytest.approx(one["weights"], abs=1e-8)
    assert ranks["running"] == [pytest.approx(v, abs=1e-8) for v in one["running"]]
    assert ranks["apart"] == 0


def test_local_statistics_stay_near_but_are_another_trajectory(found):
    ranks, one = found["flat local"]
    assert ranks["apart"] == 0
    for mine, theirs in zip(ranks["epochs"], one["epochs"], strict=True):
        assert mine[0] == pytest.approx(theirs[0], rel=0.1)
        assert mine[0] != pytest.approx(theirs[0], rel=1e-6)


@pytest.mark.parametrize("name", ["ddp sync", "tuned sync", "flat sync"])
def test_no_image_is_lost_or_counted_twice(found, name):
    ranks, one = found[name]
    assert ranks["samples"] == one["samples"] == [37, 37]
    assert ranks["test"][2] == one["test"][2] == 13
    assert ranks["test"][0] == pytest.approx(one["test"][0], rel=1e-9)
    assert ranks["test"][1] == one["test"][1]


@pytest.mark.parametrize("name", ["ddp", "ddp:tuned=true:bucket_mb=1", "ddp:tuned=true", "flat-reduce"])
def test_micro_batches_of_ranks_learn_what_whole_batches_of_one_process_do(found, name):
    ranks, (_, one) = found[f"{name} in parts"], found["ddp local, no BatchNorm"]
    assert (ranks["apart"], ranks["samples"]) == (0, [37, 37])
    assert ranks["epochs"] == [[pytest.approx(loss, rel=1e-12), right] for loss, right in one["epochs"]]
    assert ranks["weights"] == pytest.approx(one["weights"], abs=1e-12)


def test_ranks_that_each_select_of_their_part_train_one_net_however_they_exchange(found):
    first, *others = found["selecting"]
    assert first["apart"] == 0
    assert first["samples"] == [37, 37]
    assert first["weights"] != pytest.approx(found["ddp sync"][0]["weights"], abs=1e-4)
    for other in others:
        assert (other["apart"], other["samples"]) == (0, [37, 37])
        assert other["epochs"] == [pytest.approx(epoch, rel=1e-9) for epoch in first["epochs"]]
        assert other["weights"] == pytest.approx(first["weights"], abs=1e-8)
        assert other["running"] == [pytest.approx(v, abs=1e-8) for v in first["running"]]


def test_a_size_of_buckets_is_tried_out_on_all_ranks_and_they_choose_one(found):
    tried = found["buckets"]
    (size, note), other = tried["chosen"]
    assert tried["sizes"] == [1, 3]
    assert size in tried["sizes"]
    # The note has each size's time: where ranks had chosen by their own clocks, it would be another on each.
    assert other == [size, note]
    assert note.startswith(f"buckets of {size} MiB (1: ")
    assert ", 3: " in note


def test_buckets_that_were_tried_out_change_nothing_of_the_training(found):
    tried = found["buckets"]
    for given in tried["given"]:
        assert tried["tried"]["epochs"] == given["epochs"]
        assert tried["tried"]["weights"] == given["weights"]
        assert tried["tried"]["running"] == given["running"]
    assert tried["alike"]


def test_a_given_size_stays_and_long_steps_are_not_tried_out(found):
    tried = found["buckets"]
    assert "ddp" not in tried["given settles"]
    size, note = tried["slow"]
    assert size == 25
    assert note.startswith("buckets of 25 MiB, not tried out: a step takes ")


def test_bf16_gradients_learn_alike(found):
    whole = found["flat sync"][0]["epochs"]
    for mine, theirs in zip(found["bf16"], whole, strict=True):
        assert mine[0] == pytest.approx(theirs[0], rel=0.01)


def test_all_ranks_evaluate_one_average(found):
    assert found["averages apart"] == [0.0, 0.0]


def test_what_ranks_tell_each_other(found):
    assert found["gathered"] == [10.0, 11.0]
    assert found["collected"] == [{"rank": 0}, {"rank": 1}]
    assert found["agreed"] == "rank 0"


@pytest.mark.parametrize(("name", "klass"), [("check", "exact"), ("check bf16", "numeric"), ("check weak", "exact")])
def test_the_exchange_passes_the_one_step_comparison(found, name, klass):
    assert found[name]["passed"], found[name]
    assert found[name]["klass"] == klass


def test_each_rank_s_steps_stand_in_the_epoch_s_record(found):
    epoch = found["epoch"]
    (other,) = epoch["ranks_breakdown"]
    for rank in (epoch["breakdown"], other):
        assert rank["steps"] == epoch["steps"] - 1 == 3
        assert set(rank["parts_ms"]) == {"data", "forward", "backward", "optimizer", "read", "rest"}
        assert sum(rank["mean_ms"].values()) > 0
    assert other != epoch["breakdown"]
    assert epoch["skew_s"] >= 0
