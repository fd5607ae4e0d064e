"""Which optimizations `laptime run` hands to a worker."""

from contextlib import nullcontext
from functools import partial

import pytest
from tests.unit.conftest import make_data_spec

from laptime.errors import RunError, UsageError
from laptime.gate.request import make_gate_request
from laptime.gate.whole import run_gate
from laptime.ladder import prepare, single
from laptime.ladder.request import LadderRequest
from laptime.launchers.base import Hooks
from laptime.launchers.lock import folder_alone
from laptime.places import Places
from laptime.records import RunRecord, write_json
from laptime.spec import OwnSpec


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
    said: list[str] = []
    request = LadderRequest(variants=(variant,), launcher=launcher)
    spec = single.plan_single(request, (), Places(tmp_path), said.append).spec
    assert ("bf16" in [o.name for o in spec.optimizations]) == short
    assert any(text.startswith(f"{variant} runs without bf16: this CPU") for text in said) != short


@pytest.mark.parametrize(
    ("variant", "told"),
    [
        ("cpu-resident", []),
        ("cpu-optimized", ["cpu-optimized runs without channels-last and products: no convolutions."]),
        ("cpu-products", "cpu-products is not for this training: no convolutions; name another variant"),
        ("cpu-baseline+crop", r"crop of cpu-baseline\+crop is not for cifar: no images; leave it out"),
        ("cpu-optimized+folded-norms", r"folded-norms of .* is not for cifar: it is for the workload detection; leave"),
        ("cpu-baseline+graph", r"graph is for a GPU, and cpu-baseline\+graph does not run on one: leave it out"),
    ],
)
def test_what_a_training_or_a_device_can_not_have_is_never_left_out_silently(tmp_path, monkeypatch, variant, told):
    refused = {"channels-last": "no convolutions", "products": "no convolutions", "crop": "no images"}
    own = OwnSpec(
        attribute="workload", name="train", batch_size=32, learning_rate=1e-3, quality="loss", refused=refused
    )
    data = make_data_spec(train=1000, test=500).model_copy(update={"own": own})
    monkeypatch.setattr(single, "fetch_data", lambda *_: data)
    monkeypatch.setattr(single, "hopeless_here", lambda *_: ())
    said: list[str] = []
    begin = partial(single.plan_single, LadderRequest(variants=(variant,)), (), Places(tmp_path), said.append)
    with pytest.raises(UsageError, match=told) if isinstance(told, str) else nullcontext():
        assert not refused.keys() & {o.name for o in begin().spec.optimizations}
        assert said == told
    if "+" in variant:  # a ladder of it is refused as early
        monkeypatch.setattr(prepare, "fetch_data", lambda *_: data)
        with pytest.raises(UsageError, match=told):
            prepare.prepare_data(LadderRequest(variants=(variant,)), Places(tmp_path), said.append)


def test_bare_leaves_out_all_but_the_times(tmp_path, monkeypatch):
    monkeypatch.setattr(single, "fetch_data", lambda *_: make_data_spec(train=1000, test=500))
    planned = single.plan_single(LadderRequest(variants=("cpu-resident",)), (), Places(tmp_path), print, "kept")
    assert (planned.spec.check, planned.spec.save_model, planned.spec.profile) == (True, True, "full")
    assert planned.spec.checkpoints == "kept"
    assert planned.folder == tmp_path / "runs" / planned.id, "whose journal laptime clean looks for by that name"
    bare = planned.bare().spec
    assert (bare.check, bare.save_model, bare.profile, bare.checkpoints) == (False, False, "none", "kept")


def test_a_run_with_checkpoints_that_failed_goes_on_in_its_folder_and_one_that_is_done_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(single, "fetch_data", lambda *_: make_data_spec(train=1000, test=500))
    request = LadderRequest(variants=("cpu-resident",), out=str(tmp_path))
    for status, checkpoints, goes_on in (("failed", "kept", True), ("failed", None, False), ("done", "kept", False)):
        write_json(tmp_path / "record.json", RunRecord(status=status))
        with nullcontext() if goes_on else pytest.raises(UsageError, match=r"holds a record\.json already"):
            assert single.plan_single(request, (), Places(tmp_path), print, checkpoints).folder == tmp_path


def test_a_lock_that_can_not_be_opened_is_told_before_data_are_fetched(tmp_path, monkeypatch):
    def fetched(*_: object) -> None:
        raise AssertionError

    monkeypatch.setenv("LAPTIME_LOCKS", str(tmp_path / "gone"))
    for module in (prepare, single):
        monkeypatch.setattr(module, "fetch_data", fetched)
    request, places = LadderRequest(device="cpu", variants=("cpu-resident",)), Places(tmp_path)
    for begin in (
        lambda: prepare.prepare_data(request, places, print),
        lambda: single.plan_single(request, (), places, print),
    ):
        with pytest.raises(RunError, match=r"make the folder .*gone, or set LAPTIME_LOCKS"):
            begin()
    said: list[str] = []
    gate = run_gate(make_gate_request(workload="cifar", device="cpu", base_dir=".", head_dir="."), places, said.append)
    assert "set LAPTIME_LOCKS" in gate.outcome.sentence
    assert said == []


def test_two_runs_at_once_in_one_folder_would_mix_their_files(tmp_path, monkeypatch):
    monkeypatch.setattr(single, "fetch_data", lambda *_: make_data_spec(train=1000, test=500))
    request, places = LadderRequest(device="cpu", variants=("cpu-resident",), out=str(tmp_path)), Places(tmp_path)
    planned = single.plan_single(request, (), places, print)
    with folder_alone(tmp_path):
        for begin in (lambda: single.plan_single(request, (), places, print), lambda: planned.run(Hooks())):
            with pytest.raises(UsageError, match=r"another command trains in the folder .*: give another --out"):
                begin()
    single.plan_single(request, (), places, print)
