"""What pods and events say, as Kubernetes writes them, in our words."""

import pytest

from laptime.launchers.pods import deaths, delay, refusal, started, verdict


def pod(phase: str = "Pending", state: dict | None = None, **status) -> dict:
    boxes = [{"name": "trainer", "image": "trainer:1", "state": state}] if state else []
    return {"metadata": {"name": "laptime-x-0-abcde"}, "status": {"phase": phase, "containerStatuses": boxes, **status}}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("ImagePullBackOff", "LAPTIME_KUBERNETES_IMAGE"),
        ("ErrImageNeverPull", "PULL_POLICY"),
        ("InvalidImageName", "LAPTIME_KUBERNETES_IMAGE"),
        ("CreateContainerConfigError", "secret"),
    ],
)
def test_a_container_that_can_t_start_is_told(reason, remedy):
    said = refusal([pod(), pod(state={"waiting": {"reason": reason, "message": "Back-off\npulling"}})], ())
    assert all(part in said for part in (reason, remedy, "trainer:1", "laptime-x-0-abcde"))
    assert "\n" not in said
    assert refusal([pod(state={"waiting": {"reason": "ContainerCreating"}})], ()) is None


def test_pods_that_may_not_be_made_are_told():
    quota = {"reason": "FailedCreate", "message": 'pods "x" is forbidden: exceeded quota: team, requested: cpu=4'}
    assert "exceeded quota: team" in refusal([], [{"reason": "Other"}, quota])
    assert "larger quota" in refusal([], [quota])
    missing = {"reason": "FailedCreate", "message": "error looking up service account laptime/laptime-trainer"}
    assert "laptime-trainer" in refusal([], [missing])
    assert refusal([], []) is None
    assert refusal([pod()], [quota]) is None  # there are some now


def test_the_scheduler_is_quoted():
    said = delay([pod(conditions=[{"type": "Ready", "status": "False"}, UNSCHEDULABLE])])
    assert said == "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert delay([pod("Running")]) is None


def test_how_pods_died():
    ended = [
        pod("Failed", {"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
        pod("Failed", {"terminated": {"reason": "Error", "exitCode": 1}}),
        pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
        pod("Succeeded", {"terminated": {"reason": "Completed", "exitCode": 0}}),
    ]
    memory, code, evicted = deaths(ended)
    assert "OOMKilled" in memory
    assert "LAPTIME_KUBERNETES_MEMORY" in memory
    assert "exit code 1" in code
    assert "low on resource" in evicted


def test_a_job_s_end():
    failed = {"type": "Failed", "status": "True", "reason": "FailedIndexes"}
    assert verdict({"status": {"conditions": [{"type": "FailureTarget", "status": "True"}, failed]}}) == (
        "Failed FailedIndexes"
    )
    assert verdict({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}) == "Complete"
    assert verdict({"status": {}}) is None
    assert started([pod(), pod("Running")])
    assert not started([pod()])
