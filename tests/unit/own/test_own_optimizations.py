"""Every optimization on users' own workloads: it trains and its step is right, or it is refused with a reason."""

import sys
from pathlib import Path

import pytest
import torch
from tests.own_files import DICTIONARY, NORMALIZED, TUPLE, WIDE, write

from laptime.catalogue import LADDERS, OPTIMIZATIONS, rung_spec
from laptime.engine.build import build, make_recipe, open_data, refuse_unfit
from laptime.engine.check import TOLERANCES, check_one_step
from laptime.engine.evaluate import evaluate, totals
from laptime.engine.loop import drive
from laptime.engine.reset import reset, snapshot
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec, RunSpec

EXAMPLES = Path(__file__).parents[3] / "examples"
KINDS = ("tuple", "dictionary", "characters", "speedrun", "normalized")
QUICKER = {
    "compile": {"backend": "aot_eager"},
    "workers": {"count": 1},
    "threads": {"count": 1},
    "large-batch": {"size": 24},
}
# Those for CUDA alone do the same work on a CPU, but for one that is `compile` in another mode.
TRIED = [o for o in OPTIMIZATIONS if o.name != "compile-graphed"]
# What is for none of these, and what a net without convolutions or an optimizer of one's own leaves out.
CLASSIFIER = (
    *("decoded", "whole-batch", "flip", "crop", "label-smoothing", "progressive-resizing", "selective-backprop"),
)
CONVOLUTIONS = ("channels-last", "dead-taps", "products")
LEFT_OUT = {
    "tuple": CLASSIFIER,
    "dictionary": (*CLASSIFIER, *CONVOLUTIONS, "decay", "dp"),
    "characters": (*CLASSIFIER, *CONVOLUTIONS, "decay"),
    "speedrun": (*CLASSIFIER, "dead-taps", "decay", "onecycle", "linear-decay", "fused-optimizer", "graph"),
    "normalized": (*CLASSIFIER, "dead-taps"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder, before = tmp_path_factory.mktemp("all"), list(sys.path)
    names = {
        "tuple": write(folder / "all_tuple.py", TUPLE, WIDE),
        "dictionary": write(folder / "all_rows.py", DICTIONARY),
        "characters": f"{EXAMPLES / 'char_transformer.py'}:workload",
        "speedrun": f"{EXAMPLES / 'speedrun.py'}:Small",
        "normalized": write(folder / "all_normalized.py", TUPLE, *NORMALIZED),
    }
    specs = {kind: inspect(name) for kind, name in names.items()}
    yield specs
    sys.path[:] = before


class Lap:
    def __init__(self):
        self.counts = []

    def begin(self): ...

    def step(self, counts):
        self.counts.append(counts)

    def end(self): ...


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("entry", TRIED, ids=lambda entry: entry.name)
@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_and_its_step_is_right_or_it_is_refused(found, kind, entry):
    data, chosen = found[kind], (OptimizationSpec(name=entry.name, options=QUICKER.get(entry.name, {})),)
    spec = RunSpec(
        workload=data.own.name,
        variant="tried",
        optimizations=chosen,
        data=data,
        batch_size=16,
        learning_rate=data.own.learning_rate,
        epochs=1,
        limit_train=40,
        limit_test=8,
    )
    if entry.workload or entry.name in LEFT_OUT[kind]:
        with pytest.raises(UsageError, match=rf"^{entry.name} is not for .*: .+ .+\. Leave it out of tried"):
            refuse_unfit(spec)
        return
    threads = torch.get_num_threads()
    opened = open_data(spec)
    recipe = make_recipe(spec, opened, chosen)
    parts = build(recipe, mark=lambda _: None)
    saved, lap = snapshot(parts), Lap()
    reset(parts, recipe, saved)
    drive(parts, 0, lap)
    loss, _, samples = totals(lap.counts)
    assert samples == 40
    assert 0 < loss < 10
    assert any(not torch.equal(value, saved[name]) for name, value in parts.model.named_parameters())
    assert evaluate(parts, recipe, opened.test).count == 8
    checked = check_one_step(spec, opened, 16)
    assert (checked is None) == (entry.klass not in TOLERANCES)
    assert checked is None or checked.passed, checked
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def test_what_a_cpu_can_not_do_is_no_rung_there():
    rungs = {rung_spec(rung).name for rung in LADDERS["cpu"]}
    assert not rungs & {o.name for o in OPTIMIZATIONS if "cpu" not in o.devices}
