"""What a look into a user's file refuses stands beside the ladder with its reason, on a CPU as on a GPU."""

from laptime.catalogue import find_preset, find_workload
from laptime.ladder.plan import make_plan, with_refusals
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
