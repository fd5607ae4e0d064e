"""What a look into a user's file refuses stands beside the ladder with its reason, on a CPU as on a GPU."""

from dataclasses import replace

from laptime.catalogue import find_preset, find_workload
from laptime.catalogue.own import own_entry
from laptime.ladder.plan import make_plan, unfit, with_refusals
from laptime.records import ProbeRecord
from laptime.spec import DataSpec, OwnSpec


def test_the_line_that_makes_a_file_unsafe_to_fork_is_told():
    reason = "its loader workers hang: train.py:12 waits for a lock"
    refused = {"workers": reason}
    own = OwnSpec(attribute="workload", name="train", batch_size=8, learning_rate=1e-3, quality="loss", refused=refused)
    data = DataSpec(
        asked="train.py:workload", kind="own", digest="d", path="", classes=(), train_count=64, test_count=8, own=own
    )
    preset = find_preset(find_workload("cifar"), "full")
    for device in ("cpu", "cuda"):
        plan = make_plan(device, preset, None, with_refusals(ProbeRecord(), data))
        assert {left.variant: left.reason for left in plan.left_out}[f"{device}-workers"] == reason


def test_one_batch_that_holds_all_samples_leaves_no_larger_one():
    """The rung trained exactly as the one before it, and joined where the clock happened to say so."""
    small = replace(own_entry("train.py:workload"), train_count=32)
    plan = make_plan("cpu", find_preset(small, "quick"), None, ProbeRecord(refusals=unfit(small, "cpu")))
    left = {out.variant: out.reason for out in plan.left_out}
    assert left["cpu-large-batch"] == "one batch of 32 holds all training samples (32) already"
    assert "large-batch" not in unfit(replace(small, train_count=33), "cpu")
    assert "large-batch" not in unfit(replace(small, train_count=0), "cpu"), "nobody has looked yet"
    for count in (0, 1000):  # known or not, a ladder has no more samples than it is limited to
        limited = unfit(replace(small, train_count=count), "cpu", 20)
        assert limited["large-batch"] == "one batch of 32 holds all training samples (20) already"
        assert "large-batch" not in unfit(replace(small, train_count=count), "cpu", 40)
