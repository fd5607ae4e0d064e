"""What is said of the machine."""

from __future__ import annotations

import os

import pytest

from laptime.measure import machine as module


@pytest.mark.parametrize(("allowed", "known"), [(os.cpu_count(), True), ((os.cpu_count() or 1) + 1, False)])
def test_the_load_of_a_host_is_recorded_only_where_all_its_cores_may_be_used(
    allowed: int, known: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "allowed_cores", lambda: allowed)
    found = module.machine.__wrapped__()
    assert (found.load_before is not None) is known
