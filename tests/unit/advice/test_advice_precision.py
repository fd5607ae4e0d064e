"""bf16 for somebody else's trace: by the type of its operands and its GPU's generation, and never by silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.trace.trace_builder import Trace

from laptime.advice import advise
from laptime.records import Advice
from laptime.trace import summarize

_DIMS = [[64, 64, 32, 32], [64, 64, 3, 3]]


def advised(folder: Path, types: list[str] | None, major: int | None = 8, device: bool = True) -> Advice:
    """Ten steps of 1 ms, 600 us of it a convolution, 300 an addition."""
    trace = Trace()
    trace.meta["deviceProperties"] = [{"id": 0, "name": "GPU"} | ({"computeMajor": major} if major else {})]
    for number in range(10):
        at = 1000.0 * number
        trace.step(number, at, 1000)
        inputs: dict[str, Any] = {"Input Dims": _DIMS} | ({"Input type": types} if types else {})
        name = "aten::cudnn_convolution" if device else "aten::mkldnn_convolution"
        conv = trace.op(name, at + 10, 600 if not device else 10, **inputs)
        added = trace.op("aten::add", at + 650, 300 if not device else 10, **{"Input Dims": [[64, 64], [64, 64]]})
        if device:
            trace.launch(conv, at + 12, at + 20, 600)
            trace.launch(added, at + 652, at + 660, 300)
    return advise(None, summarize(trace.write(folder / "t.json")))


def why(advice: Advice) -> str:
    assert "precision" not in {f.id for f in advice.findings}
    return next((w.reason for w in advice.withheld if w.id == "precision"), "")


def test_a_trace_in_fp32_on_a_gpu_with_bf16_is_offered_it_in_a_wide_range(tmp_path: Path) -> None:
    found = next(f for f in advised(tmp_path, ["float", "float"]).findings if f.id == "precision")
    # 600 us at twice the rate of which half is reached, and at four times.
    assert found.step_ms_expected == (pytest.approx(1 - 0.6 * 3 / 4), pytest.approx(1 - 0.6 / 3))
    assert (found.confidence, found.klass) == (0.3, "numeric")
    assert found.command == 'with torch.autocast("cuda", dtype=torch.bfloat16): ...'
    assert any("not measured" in text for text in found.evidence)


@pytest.mark.parametrize("name", ["c10::BFloat16", "c10::Half"])
def test_under_autocast_there_is_nothing_to_propose(tmp_path: Path, name: str) -> None:
    assert why(advised(tmp_path, [name, name])) == ""


@pytest.mark.parametrize(
    ("types", "options", "reason"),
    [
        (None, {}, "record_shapes=True"),
        (["float", "float"], {"major": 7}, "compute capability 7"),
        (["float", "float"], {"major": None}, "not known: the GPU's compute capability"),
        (["float", "float"], {"device": False}, "on a CPU only a probe"),
    ],
)
def test_what_can_not_be_judged_is_said(tmp_path: Path, types: list[str], options: dict[str, Any], reason: str) -> None:
    assert reason in why(advised(tmp_path, types, **options))
