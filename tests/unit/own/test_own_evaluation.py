"""An evaluation of the user's own: in the record, in the comparison with its direction, among MLflow's metrics."""

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.own_files import ATTACKED, JUDGED, TUPLE, WIDE, own_spec, place, write
from tests.unit.compare.compare_examples import ladder, records

from laptime import worker
from laptime.artifacts import epoch_line, times_line
from laptime.compare.comparison import compare
from laptime.compare.curves import time_to_quality
from laptime.compare.markdown import to_markdown
from laptime.compare.quality import advantage, scores_of
from laptime.data.own.opened import OwnSplit, open_own
from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.evaluate import evaluate
from laptime.errors import LaptimeError
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.preflight.inspecting import inspect
from laptime.spec import RunSpec
from laptime.tracking.rows import curves
from laptime.workloads.own import evaluated

CHANGES = "x, y = batch\n        x.mul_(0.5)\n"
READ = """

READINGS = []

class Counted(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        READINGS.append(i)
        return X[64 + i].clone(), Y[64 + i]
"""
# Test items count how often they are read; the loss changes its batch in place.
COUNTED = JUDGED.replace("TensorDataset(X[64:], Y[64:])", "Counted()").replace("x, y = batch\n", CHANGES) + READ
RETURNS = "return 2 * hits / (found.sum() + true.sum())"
ERROR = ("    batch_size = 16\n", "    batch_size = 16\n    higher_is_better = False\n")


def spec_of(name: str, *chosen: str) -> RunSpec:
    return own_spec(inspect(name), "+".join(("cpu-baseline", *chosen)), epochs=2, check=False)


def judged_by(name: str, *chosen: str):
    """Losses and scores of three epochs, and how often items were read for them."""
    spec, marks = spec_of(name, *chosen), StepMarks()
    recipe = make_recipe(spec, open_data(spec), spec.optimizations)
    session = Session(build(recipe, marks), recipe, marks, lambda *_: None)
    readings = sys.modules[recipe.data.file.stem].READINGS
    readings.clear()
    epochs = list(session.counted(Plan(3, 0, None)))
    return [(e.test_loss, e.test_score) for e in epochs], len(readings), recipe.data.test


def test_beside_resident_samples_test_items_are_read_once_and_give_the_same_values(file):
    """Twice in each epoch otherwise: for the loss and for the evaluation of the user's own."""
    name = write(file, COUNTED)
    plain, often, _ = judged_by(name)
    found, once, split = judged_by(name, "resident")
    assert found == plain
    assert often == 3 * 2 * 32
    assert once == 32 + 2 * 8
    assert len(split.kept) == 2


def test_what_it_leaves_in_gradients_is_not_trained_with(file):
    """It goes through the test data twice, too."""
    spec = spec_of(write(file, JUDGED.replace(*ATTACKED)))
    recipe = make_recipe(spec, open_data(spec), ())
    parts = build(recipe, StepMarks())
    assert evaluate(parts, recipe, recipe.data.test).scores["test_score"] > 0
    assert all(p.grad is None for p in parts.model.parameters())


def test_test_items_that_differ_are_read_again(file):
    noisy = ("return X[64 + i].clone()", "return X[64 + i] * torch.rand(())")
    name = write(file, COUNTED, noisy)
    _, often, split = judged_by(name, "resident")
    assert often == 3 * 2 * 32 + 2 * 8
    assert not split.kept


def test_without_room_for_them_test_items_are_read_again(file, monkeypatch):
    module = sys.modules["laptime.optimizations.resident"]
    monkeypatch.setattr(module, "free_memory", lambda: 64 * (192 * 4 + 8) * 4 // 3 + 64)
    _, often, split = judged_by(write(file, COUNTED), "resident")
    assert (often, type(split)) == (3 * 2 * 32, OwnSplit)


@pytest.mark.parametrize("chosen", [(), ("bf16", "ema")])
def test_it_sees_all_test_data_and_stands_in_the_record(file, chosen):
    spec = spec_of(write(file, JUDGED), *chosen)
    assert spec.data.own.quality == "score"
    opened, marks = open_data(spec), StepMarks()
    recipe = make_recipe(spec, opened, spec.optimizations)
    parts = build(recipe, marks)
    *_, last = Session(parts, recipe, marks, lambda *_: None).counted(Plan(2, 0, None))
    inputs, labels = opened.test.whole()
    parts.evaluated.eval()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled="bf16" in chosen):
        found = parts.evaluated(inputs).argmax(1)
    hits = int((found * labels).sum())
    assert last.test_score == pytest.approx(2 * hits / int(found.sum() + labels.sum()))
    assert last.test_accuracy is not None
    line = epoch_line(last.model_copy(update={"epoch_s": 2.0, "evaluate_s": 0.254}), timed=True)
    assert line.startswith("epoch 1: 2.00 s, ")
    assert line.endswith(f"test score {last.test_score:.3f}; evaluated in 0.254 s")
    timed = [last.model_copy(update={"epoch_s": e, "evaluate_s": s}) for e, s in ((2.0, 0.254), (1.5, 3.0))]
    assert times_line(timed) == "epochs took 2.00 s, 1.50 s; evaluations 0.254 s, 3.00 s"
    assert "evaluat" not in epoch_line(last, timed=False)


def test_a_run_is_judged_by_an_error_of_which_less_is_better(file, tmp_path):
    record = worker.run(spec_of(write(file, JUDGED, ERROR, (RETURNS, "return 40.0 + hits"))), tmp_path / "run")
    assert record.status == "done", record.error
    assert record.spec.data.own.quality == "error"
    reached = [e.test_error for e in record.epochs]
    assert min(reached) >= 40
    assert scores_of([record], "error").values == (reached[-1],)
    assert time_to_quality([record], "error", max(reached)) == record.epochs[reached.index(max(reached))].train_s_so_far
    assert advantage(40, 50, "error") == pytest.approx(20)
    rows = [r for r in curves(ladder(), [record]) if r.name == "test_error"]
    assert [(r.step, r.value) for r in rows] == list(enumerate(reached))


@pytest.mark.parametrize(("quality", "factor", "verdict"), [("score", 1.0, "better"), ("error", 100.0, "worse")])
def test_the_report_says_its_direction(quality, factor, verdict):
    """The optimized variant's numbers are higher by 8 points, or 12 % of an error."""
    changed = [
        run.model_copy(
            update={
                "epochs": tuple(
                    e.model_copy(update={"test_accuracy": None, f"test_{quality}": factor * e.test_accuracy})
                    for e in run.epochs
                )
            }
        )
        for run in records()
    ]
    comparison = compare(ladder().model_copy(update={"quality": quality, "quality_floor": 0.0}), changed)
    row, base = comparison.row("cpu-optimized"), comparison.row("cpu-baseline")
    assert row.verdict == verdict
    text = to_markdown(comparison)
    assert f"test {quality}" in text
    better = f"{row.quality * 100:.1f} % | +8.0 pp better" if quality == "score" else f"{row.quality:.4g} | "
    assert better in text
    assert row.quality > base.quality


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        ("return 1.5", r"evaluate\(\) gave 1\.5 \(.*line \d+: def evaluate.*: return one number, 1 at best"),
        ("return [0.5]", r"evaluate\(\) gave list .*return one number"),
        ("return found", r"evaluate\(\) gave a int64 tensor of shape \(32,\)"),
        ("return 1 / 0", r"evaluate\(\) failed: ZeroDivisionError.*line \d+: return 1 / 0"),
    ],
)
def test_a_mistake_in_it_is_told_with_its_line(file, returns, said):
    with pytest.raises(LaptimeError, match=said):
        inspect(write(file, JUDGED, (RETURNS, returns)))


def test_what_is_no_number_is_not_judged(file):
    spec = spec_of(write(file, JUDGED, (RETURNS, "return float('nan')")))
    opened, marks = open_own(file, "Workload"), StepMarks()
    recipe = make_recipe(spec, opened, ())
    (epoch,) = Session(build(recipe, marks), recipe, marks, lambda *_: None).counted(Plan(1, 0, None))
    assert (epoch.test_score, spec.data.own.quality) == (None, "score")


@pytest.mark.parametrize(("scores", "fails"), [("sigmoid()", True), ("sigmoid().float()", False), ("argmax(1)", False)])
def test_scores_that_are_handed_to_numpy_leave_bf16_out_with_the_line(file, scores, fails):
    """Metrics of scikit-learn take arrays, which know no bfloat16: runs would have ended after their first epoch."""
    found = f"found = [model(x).{scores}.cpu().numpy().mean() for x, y in batches]\n        return found[0] / 2"
    name = write(file, TUPLE + f"\n    def evaluate(self, model, batches):\n        {found}\n")
    refused = inspect(name).own.refused
    assert ("bf16" in refused) is fails
    if fails:
        assert place(file, "sigmoid()") in refused["bf16"]
        assert ".float() before .numpy()" in refused["bf16"]


@pytest.mark.parametrize("fails", [False, True])
def test_gradients_of_an_evaluation_are_not_those_of_the_training(fails):
    """Neither behind it, nor where it goes backward and then fails, as one does that numpy breaks in bf16."""
    net = torch.nn.Linear(2, 1)
    kept = net.weight.grad = torch.full_like(net.weight, 0.5)

    def evaluate(model, batches):
        model(torch.ones(3, 2)).sum().backward()
        if fails:
            raise TypeError("no bfloat16")
        return 0.5

    with pytest.raises(TypeError) if fails else nullcontext():
        evaluated(SimpleNamespace(evaluate=evaluate), net, None, Path("train.py"))
    assert net.weight.grad is kept
    assert torch.equal(kept, torch.full_like(kept, 0.5))
    assert net.bias.grad is None


@pytest.mark.parametrize(
    ("reads", "told"),
    [
        ("model[0].weight.abs().mean()", True),
        ("model.state_dict()['0.weight'].std()", True),
        ("model[4].bias.mean()", False),
    ],
)
def test_an_evaluation_that_reads_weights_leaves_their_taps(file, reads, told):
    """A norm, a share of zeros: it had been that of the cropped kernel, in silence."""
    judged = JUDGED.replace(*WIDE).replace("return 2 * hits", f"return 0 * {reads} + 2 * hits")
    reason = inspect(write(file, judged)).own.refused.get("dead-taps", "")
    assert ("evaluate() reads the weight of 0" in reason) == told
    assert bool(reason) == told
