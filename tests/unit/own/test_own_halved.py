"""What fails in bf16 is told before `laptime run` starts; a ladder on a CPU has a probe for it."""

import pytest
import torch
from tests.own_files import LINE_OF_SPARSE, SPARSE, TUPLE, write

from laptime.errors import UsageError
from laptime.ladder import prepare, single
from laptime.ladder.request import LadderRequest
from laptime.places import Places
from laptime.preflight.inspecting import inspect
from laptime.variants import resolve

# As quantization-aware training has it.
_OBSERVED = ("nn.ReLU()", "torch.ao.quantization.default_fused_act_fake_quant()")


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.parametrize(("change", "line"), [(SPARSE, LINE_OF_SPARSE), (_OBSERVED, "scores = model(x)")])
def test_a_step_that_fails_in_bf16_is_refused_with_its_line(file, change, line):
    name = write(file, TUPLE, change)
    reason = inspect(name, "cpu").own.refused["bf16"]
    assert line in reason
    assert "on this CPU fails in bf16" in reason


def test_a_step_that_takes_bf16_is_not_refused_and_none_is_taken_unasked(file):
    assert "bf16" not in inspect(write(file, TUPLE), "cpu").own.refused
    assert "bf16" not in inspect(write(file, TUPLE, SPARSE)).own.refused


@pytest.mark.parametrize("variant", ["cpu-bf16", "cpu-baseline+bf16", "cpu-optimized"])
def test_a_run_says_so_before_it_trains(file, tmp_path, monkeypatch, variant):
    monkeypatch.setattr(single, "hopeless_here", lambda *_: ())  # whatever this CPU emulates
    monkeypatch.setenv("LAPTIME_LOCKS", str(tmp_path))
    said: list[str] = []
    request = LadderRequest(workload=write(file, TUPLE, SPARSE), variants=(variant,))

    def planned():
        return single.plan_single(request, (), Places(tmp_path), said.append).spec

    if variant == "cpu-optimized":
        assert "bf16" not in [o.name for o in planned().optimizations]
        assert any("runs without bf16: a step of its net on this CPU fails" in told for told in said)
    else:
        with pytest.raises(UsageError, match=r"not for .*: a step of its net on this CPU fails in bf16"):
            planned()


def test_where_bf16_is_emulated_no_step_is_taken_for_it(file, tmp_path, monkeypatch):
    monkeypatch.setattr(single, "hopeless_here", lambda *_: ("bf16",))
    monkeypatch.setenv("LAPTIME_LOCKS", str(tmp_path))
    said: list[str] = []
    request = LadderRequest(workload=write(file, TUPLE, SPARSE), variants=("cpu-optimized",))
    planned = single.plan_single(request, (), Places(tmp_path), said.append).spec
    assert "bf16" not in [o.name for o in planned.optimizations]
    assert [told for told in said if "bf16" in told] == [f"cpu-optimized runs without bf16: {single.EMULATED}."]


@pytest.mark.parametrize(
    ("variant", "here", "asked"),
    [
        ("cuda-optimized", True, "cuda"),
        ("cuda-baseline+bf16", False, ""),  # on GPUs of other machines
        ("cuda-baseline", True, ""),
        ("cpu-bf16", False, "cpu"),
    ],
)
def test_a_run_asks_where_it_trains(variant, here, asked):
    assert single._halved_on(resolve(variant), here) == asked


@pytest.mark.parametrize(("device", "asked"), [("cuda", "cuda"), ("cpu", "")])
def test_a_ladder_asks_a_gpu_since_no_probe_does(tmp_path, monkeypatch, device, asked):
    class AskedError(Exception):
        pass

    def fetch(*given):
        *_, halved_on, _ = given
        assert halved_on == asked
        raise AskedError

    monkeypatch.setattr(prepare, "choose_device", lambda _: device)
    monkeypatch.setattr(prepare, "fetch_data", fetch)
    monkeypatch.setenv("LAPTIME_LOCKS", str(tmp_path))
    with pytest.raises(AskedError):
        prepare.prepare_data(LadderRequest(workload="own.py:workload", device=device), Places(tmp_path), print)


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a GPU")
def test_without_a_gpu_nothing_is_said_of_one(file):
    assert "bf16" not in inspect(write(file, TUPLE, SPARSE), "cuda").own.refused
