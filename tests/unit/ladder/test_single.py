"""Which optimizations `laptime run` hands to a worker."""

import pytest
from tests.unit.conftest import make_data_spec

from laptime.ladder import single
from laptime.ladder.request import LadderRequest
from laptime.places import Places
from laptime.records import RunRecord


@pytest.mark.parametrize(
    ("variant", "emulated", "launcher", "short"),
    [
        ("cpu-optimized", ("bf16",), "process", False),
        ("cpu-optimized", (), "process", True),
        ("cpu-ddp-tuned", ("bf16",), "torchrun", False),
        ("cpu-ddp-tuned", ("bf16",), "kubernetes", True),
    ],
)
def test_what_this_cpu_emulates_is_left_out_unless_others_train(
    tmp_path, monkeypatch, variant, emulated, launcher, short
):
    monkeypatch.setattr(single, "hopeless_here", lambda *_: emulated)
    monkeypatch.setenv("LAPTIME_RUN_STORE", "s3://bucket/runs")
    monkeypatch.setenv("LAPTIME_KUBERNETES_IMAGE", "trainer:1")
    monkeypatch.setenv("LAPTIME_KUBERNETES_NODES", "2")
    monkeypatch.setattr(single, "fetch_data", lambda *_: make_data_spec(train=1000, test=500))
    monkeypatch.setattr(single, "launch", lambda _launcher, spec, *_: RunRecord(status="done", spec=spec))
    said: list[str] = []
    request = LadderRequest(variants=(variant,), launcher=launcher)
    record, _ = single.run_single(request, (), Places(tmp_path), (said.append, lambda _: None))
    assert record.spec is not None
    assert ("bf16" in [o.name for o in record.spec.optimizations]) == short
    assert any(text.startswith(f"{variant} runs without bf16: this CPU") for text in said) != short
