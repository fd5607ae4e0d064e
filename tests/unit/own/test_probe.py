"""The probe before a ladder, of a workload in a user's own file."""

import sys

from tests.own_files import TUPLE, write

from laptime import probe as probing
from laptime.inspecting import inspect
from laptime.records import Ceilings


def test_a_users_own_workload_is_probed_at_its_own_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    data = inspect(write(tmp_path / "probed.py", TUPLE))
    found = probing.probe(data.model_dump_json(), "cpu", ["bf16"])
    assert found.gains["bf16"] > 0
