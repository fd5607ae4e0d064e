"""`scripts/bench ddp` on a machine with one device: what it can't hold is left out and said."""

import importlib
from pathlib import Path

import pytest
from tests.unit.conftest import make_data_spec

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "benchmarks"


@pytest.mark.parametrize(("there", "ranks"), [(1, [1, 1, 1]), (2, [1, 1, 1, 2])])
def test_sides_with_more_ranks_than_devices_are_left_out(monkeypatch, capsys, there, ranks):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    bench = importlib.import_module("ddp")
    monkeypatch.setattr(bench, "fetch_data", lambda *_: make_data_spec(train=50_000, test=10_000))
    monkeypatch.setattr("laptime.ladder.ranks.device_count", lambda _: there)
    found = bench.sides("cuda", 10_000, 3, "auto")
    assert [spec.ranks for _, _, spec in found] == ranks
    assert ("two ranks, tuned: left out. " in capsys.readouterr().err) == (there == 1)
