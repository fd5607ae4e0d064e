"""The probe before a ladder: of a workload in a user's own file, and where it ends early."""

import sys

import pytest
import torch
from tests.own_files import DICTIONARY, LINE_OF_SPARSE, SPARSE, TUPLE, place, write

from laptime import devices
from laptime.catalogue import find_preset, find_workload, rung_spec
from laptime.engine import trial
from laptime.engine.trial import Trial
from laptime.ladder.plan import make_plan
from laptime.measure import ceilings
from laptime.preflight import probe as probing
from laptime.preflight.inspecting import inspect
from laptime.records import Ceilings


def test_a_users_own_workload_is_probed_at_its_own_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    monkeypatch.setattr(probing, "emulated_here", lambda _: {})
    data = inspect(write(tmp_path / "probed.py", TUPLE))
    found = probing.probe(data.model_dump_json(), "cpu", ["bf16"])
    assert found.gains["bf16"] > 0


@pytest.mark.parametrize(
    ("times_with", "gain", "rounds"),
    [((9.0, 8.0), 1 / 8, 2), ((9.0, 0.5, 0.5, 9.0, 0.5, 0.5), 2.0, 6), ((1.5, 8.0, 1.5, 1.5, 1.5, 1.5), 1 / 1.5, 6)],
)
def test_a_trial_ends_early_only_where_two_rounds_show_no_hope(monkeypatch, times_with, gain, rounds):
    """What is slow only once, in the first round or in another, has all its rounds."""
    left = [seconds for with_it in times_with for seconds in (1.0, with_it)]
    monkeypatch.setattr(Trial, "_parts", lambda *_: None)
    monkeypatch.setattr(trial, "_steps_s", lambda _: left.pop(0))
    assert Trial("cifar", (), rung_spec("bf16"), 32).gain() == pytest.approx(gain)
    assert not left
    assert len(times_with) == rounds


@pytest.mark.parametrize(
    ("times_with", "gain"),
    [((9.0, 0.8, 0.8), 1.25), ((9.0, 0.8, 1.2, 0.8, 0.8, 1.2), 1.25), ((9.0, 0.5, 1.4, 1.6, 1.4, 1.4), 1 / 1.4)],
)
@pytest.mark.parametrize(("workload", "batch"), [("cifar", 512), ("eurosat", 32)])
def test_few_long_rounds_become_more_where_they_disagree(monkeypatch, workload, batch, times_with, gain):
    """Two steps of which one stood still had let bf16 into a ladder on a CPU where it takes half as long again."""
    left = [seconds for with_it in times_with for seconds in (1.0, with_it)]
    monkeypatch.setattr(Trial, "_parts", lambda *_: None)
    monkeypatch.setattr(trial, "_steps_s", lambda _: left.pop(0))
    assert Trial(workload, (), rung_spec("bf16"), batch).gain() == pytest.approx(gain)
    assert not left


@pytest.mark.parametrize(
    ("compiling", "gain", "rounds"), [((0,), 2.0, 6), ((0, 1, 3), 2.0, 8), (range(99), 1 / 40, 18)]
)
def test_a_round_in_which_the_compiler_runs_does_not_count(monkeypatch, compiling, gain, rounds):
    """Batches of several shapes are compiled for one after another, each for as long as many steps."""
    events, taken = [0], []

    def steps_s(_):
        number, with_it = divmod(len(taken), 2)
        compiles = with_it and number in compiling
        events[0] += compiles
        taken.append(20.0 if compiles else 0.25 if with_it else 0.5)
        return taken[-1]

    monkeypatch.setattr(Trial, "_parts", lambda *_: None)
    monkeypatch.setattr(trial, "_steps_s", steps_s)
    assert Trial("cifar", (), rung_spec("compile"), 32).gain(lambda: events[0]) == pytest.approx(gain)
    assert len(taken) == 2 * rounds


@pytest.mark.parametrize(("first_s", "later_s", "rounds"), [(1.0, 1.0, 6), (90.0, 1.0, 6), (40.0, 40.0, 2)])
def test_long_steps_have_one_round_that_counts(monkeypatch, first_s, later_s, rounds):
    """A step of 20 s at a batch of 32 would else be taken 48 times before a ladder begins; a compiler is no step."""
    taken = []
    monkeypatch.setattr(Trial, "_parts", lambda *_: None)
    monkeypatch.setattr(trial, "_steps_s", lambda _: taken.append(first_s if len(taken) < 2 else later_s) or taken[-1])
    assert Trial("cifar", (), rung_spec("bf16"), 32).gain() == 1
    assert len(taken) == 2 * rounds


@pytest.mark.parametrize(("gain", "measured"), [(0.1, {"bf16"}), (0.9, {"bf16", "bf16@512"})])
def test_what_takes_twice_as_long_is_not_tried_at_the_large_batch(monkeypatch, gain, measured):
    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    monkeypatch.setattr(probing, "emulated_here", lambda _: {})
    monkeypatch.setattr(Trial, "gain", lambda _: gain)
    assert probing.probe("cifar", "cpu", ["bf16"]).gains.keys() == measured


@pytest.mark.parametrize(
    ("workload", "alone", "both", "gains", "beside"),
    [
        ("eurosat", 0.86, 1.3, {"bf16": 1.3}, {"bf16": "products"}),
        ("eurosat", 0.4, 1.3, {"bf16": 1.3}, {"bf16": "products"}),
        ("eurosat", 0.9, 0.8, {"bf16": 0.8}, {"bf16": "products"}),
        ("eurosat", 1.2, 1.3, {"bf16": 1.2}, {}),
        ("eurosat", 1.2, 0.8, {"bf16": 0.8}, {"bf16": "products"}),
        ("detection", 0.9, None, {"bf16": 0.9}, {}),
        ("detection", 1.2, None, {"bf16": 1.2}, {}),
    ],
)
def test_bf16_has_to_gain_beside_products(monkeypatch, workload, alone, both, gains, beside):
    """Depthwise kernels may take longer in bf16 than in fp32, and products too; which, depends on the CPU.

    The ladder ends with products. A detector has none.
    """

    def gain(trial):
        if any(o.name == "products" for o in trial.before):
            return both or pytest.fail("tried with products")
        return alone

    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    monkeypatch.setattr(probing, "emulated_here", lambda _: {})
    monkeypatch.setattr(Trial, "gain", gain)
    found = probing.probe(workload, "cpu", ["bf16"])
    assert (found.gains, found.beside) == (gains, beside)


@pytest.mark.parametrize(("least", "gains"), [(0, set()), (512, {"bf16"})])
def test_a_trial_that_fails_costs_its_rung_or_its_batch_and_no_ladder(monkeypatch, least, gains):
    def gain(trial):
        if trial.batch >= least:
            raise RuntimeError("quantile() input tensor must be float or double")
        return 1.5

    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    monkeypatch.setattr(probing, "emulated_here", lambda _: {})
    monkeypatch.setattr(Trial, "gain", gain)
    found = probing.probe("cifar", "cpu", ["bf16"])
    assert found.gains.keys() == gains
    plan = make_plan("cpu", find_preset(find_workload("cifar"), "quick"), None, found)
    reasons = [left.reason for left in plan.left_out if left.variant == "cpu-bf16" and "quantile()" in left.reason]
    assert len(reasons) == (not gains)


def test_what_this_cpu_only_emulates_is_not_tried_and_the_ladder_says_so(monkeypatch):
    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    monkeypatch.setattr(devices, "_instruction_sets", lambda: ("avx2", "fma"))
    monkeypatch.setattr(Trial, "gain", lambda _: pytest.fail("tried"))
    found = probing.probe("eurosat", "cpu")
    assert not found.gains
    plan = make_plan("cpu", find_preset(find_workload("eurosat"), "full"), None, found)
    (reason,) = [left.reason for left in plan.left_out if left.variant == "cpu-bf16"]
    assert "no instructions for it" in reason


@pytest.mark.parametrize(("gflops", "sides"), [(0.8, [192]), (150.0, [192, 1536])])
def test_a_product_that_would_take_seconds_is_measured_small(monkeypatch, gflops, sides):
    asked = []
    monkeypatch.setattr(ceilings, "_gemm_of", lambda side, *_: asked.append(side) or gflops)
    monkeypatch.setattr(ceilings, "_conv", lambda *_: 1.0)
    found = ceilings.measure_ceilings(torch.device("cpu"))
    assert found.gemm_bf16_gflops == gflops
    assert asked == sides * 2


def test_what_fails_in_a_probe_names_the_users_line(tmp_path, monkeypatch):
    """Backward through a product of sparse numbers in bf16: torch's own words name neither."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(probing, "measure_ceilings", lambda _: Ceilings())
    monkeypatch.setattr(probing, "emulated_here", lambda _: {})
    data = inspect(write(tmp_path / "sparse.py", TUPLE, SPARSE))
    found = probing.probe(data.model_dump_json(), "cpu", ["bf16"])
    assert not found.gains
    assert LINE_OF_SPARSE in found.refusals["bf16"]
    assert found.refusals["bf16"].endswith("leave bf16 out, whose numbers it does not take")


@pytest.mark.parametrize(
    ("before", "code", "told"),
    [
        ("        return {", 'raise ValueError("no label")', "ValueError: no label, at item 9 of Rows"),
        ("        return model(**batch).loss", "sys.exit()", "SystemExit"),
    ],
)
def test_what_a_probe_s_own_reading_or_a_loss_that_leaves_costs_is_the_rung(tmp_path, monkeypatch, before, code, told):
    """Items that the look has not read, and an exit that would look like the probe's own."""
    file = tmp_path / f"leaving{len(code)}.py"
    data = inspect(write(file, f"import sys\n{DICTIONARY}"))
    when = "i == 9" if code.startswith("raise") else "True"
    write(file, f"import sys\n{DICTIONARY}", (before, f"        if {when}:\n            {code}\n{before}"))
    monkeypatch.delitem(sys.modules, file.stem)
    own = data.own.model_copy(update={"file": ""})  # changed since, as for the look
    found, failure = probing.tried(data.model_copy(update={"own": own}).model_dump_json(), "cpu", "bf16")
    assert not found.gains
    assert failure.startswith(f"a probe of it on this machine failed: {told}")
    assert f"{place(file, f'            {code}')}{code})" in failure
