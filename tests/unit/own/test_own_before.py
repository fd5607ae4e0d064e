"""Where a training of the user's own began: what has learnt nothing is nothing to be judged beside."""

import pytest
import torch
from tests.own_files import JUDGED, TUPLE, own_spec, write
from tests.unit.compare.compare_examples import ladder, records

from laptime import worker
from laptime.compare.comparison import compare
from laptime.compare.quality import has_learnt, rules_of
from laptime.engine.build import build, make_recipe, open_data
from laptime.measure.marks import StepMarks
from laptime.preflight.inspecting import inspect
from laptime.spec import OwnSpec

# An evaluation that counts its calls, two of which the look into its file makes, and fails at the one that it names.
# They stand in a list of texts of the class, which nothing puts back.
FAILS = JUDGED.replace("    def evaluate(", "    calls = []\n\n    def evaluate(").replace(
    "        both =",
    "        self.calls.append('')\n        if len(self.calls) == AT:\n            raise ZeroDivisionError('no hits')\n"
    "        both =",
)


def run(name: str, tmp_path, *chosen: str, **changes):
    variant = "+".join(("cpu-baseline", *chosen))
    spec = own_spec(inspect(name), variant, **{"epochs": 2, "warmup_epochs": 1, **changes})
    return worker.run(spec, tmp_path / f"run-{len(list(tmp_path.glob('run-*')))}")


def reached(record) -> list[tuple[float | None, ...]]:
    assert record.status == "done", record.error
    return [(e.train_loss, e.test_loss, e.test_accuracy, e.test_score) for e in record.epochs]


def test_the_first_process_of_a_baseline_alone_knows_it_and_learns_what_it_would(file, tmp_path):
    name = write(file, JUDGED)
    first, second = run(name, tmp_path), run(name, tmp_path, repeat=1)
    assert reached(first) == reached(second)
    assert second.before == {}
    assert run(name, tmp_path, "ema").before == {}
    assert run(name, tmp_path, check=False).before == {}, "times alone are wanted"
    opened, marks = open_data(first.spec), StepMarks()
    model = build(make_recipe(first.spec, opened, ()), marks).evaluated.eval()
    inputs, labels = opened.test.whole()
    with torch.no_grad():
        found = model(inputs).argmax(1)
    assert first.before.keys() == {"loss", "accuracy", "score"}
    assert first.before["accuracy"] == pytest.approx((found == labels).double().mean().item())
    assert first.before["score"] == pytest.approx(2 * int((found * labels).sum()) / int(found.sum() + labels.sum()))


def test_an_evaluation_that_can_t_judge_an_untrained_net_costs_no_run(file, tmp_path):
    record = run(write(file, FAILS.replace("AT:", "3:")), tmp_path)
    assert record.before == {}
    assert reached(record) == reached(run(write(file, JUDGED), tmp_path))


def test_one_that_fails_later_is_told_as_before(file, tmp_path):
    record = run(write(file, FAILS.replace("AT:", "4:")), tmp_path)
    assert record.status == "failed"
    assert "no hits" in record.error


def test_a_loss_alone_is_known_too(file, tmp_path):
    assert run(write(file, TUPLE), tmp_path).before["loss"] == pytest.approx(0.69, abs=0.2)


def test_one_that_goes_on_from_a_checkpoint_knows_it_as_well(file, tmp_path):
    name, kept = write(file, TUPLE), str(tmp_path / "checkpoints")
    first, again = run(name, tmp_path, checkpoints=kept), run(name, tmp_path, checkpoints=kept)
    assert len(again.starts) == 2
    assert again.before == first.before != {}
    assert [e.test_loss for e in again.epochs] == [e.test_loss for e in first.epochs]


def scored(record, quality: str, value: float):
    """A record's epochs, whose quality is `value` and nothing else."""
    none = dict.fromkeys(("test_accuracy", "test_loss"), None)
    return tuple(e.model_copy(update={**none, f"test_{quality}": value}) for e in record.epochs)


def own_rows(quality: str, began: float | None, base: float, other: float):
    """The row of a variant whose quality is `other` in each round beside `base`, 4,000 test samples."""
    found = []
    for record in records():
        value = base if record.spec.variant == "cpu-baseline" else other
        epochs = scored(record, quality, value)
        first = record.spec.variant == "cpu-baseline" and not record.spec.repeat
        before = {quality: began} if first and began is not None else {}
        found.append(record.model_copy(update={"epochs": epochs, "before": before, "check": None}))
    asked = ladder().model_copy(update={"quality": quality, "quality_floor": 0.0})
    return compare(asked, found).row("cpu-optimized"), rules_of(asked, found)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("quality", ["accuracy", "score"])
def test_a_training_that_draws_by_weights_is_told_what_would_judge_it(quality, weighted):
    own = OwnSpec(attribute="w", name="w", batch_size=8, learning_rate=0.1, quality=quality, weighted=weighted)
    data = ladder().data.model_copy(update={"own": own})
    asked = ladder().model_copy(update={"data": data, "quality": quality, "quality_floor": 0.0})
    began = {"before": {quality: 0.95}}
    found = compare(asked, [r.model_copy(update=began | {"epochs": scored(r, quality, 0.9)}) for r in records()])
    said = found.row("cpu-optimized").verdict_reason
    assert ("an evaluate() that counts all classes alike would tell" in said) == (weighted and quality == "accuracy")
    assert (", drawn by its weights" in found.conditions.data) == weighted


@pytest.mark.parametrize(("quality", "began"), [("score", 0.4), ("accuracy", 0.4), ("loss", 10.8), ("error", 44.0)])
def test_nothing_is_kept_of_what_was_never_learnt(quality, began):
    row, rules = own_rows(quality, began, began, began)
    assert row.verdict == "not judged"
    assert "no better than it was before its training" in row.verdict_reason
    assert not has_learnt(began, quality, rules)
    assert own_rows(quality, None, began, began)[0].verdict == "kept", "nobody knows where it began"


@pytest.mark.parametrize(
    ("quality", "began", "base", "lost"),
    [
        ("score", 0.5, 0.52, 0.511),
        ("accuracy", 0.5, 0.52, 0.511),
        ("loss", 10.0, 9.9, 9.945),
        ("error", 50.0, 49.6, 49.8),
    ],
)
def test_half_of_what_was_learnt_is_not_kept_though_it_is_less_than_a_point(quality, began, base, lost):
    assert own_rows(quality, None, base, lost)[0].verdict in ("kept", "unclear")
    row, rules = own_rows(quality, began, base, lost)
    assert row.verdict in ("worse", "unclear")
    assert has_learnt(base, quality, rules)
    assert own_rows(quality, 0.0 if quality in ("score", "accuracy") else 2 * began, base, base)[0].verdict == "kept"


def test_a_number_that_is_none_says_nothing():
    assert own_rows("error", float("nan"), 50.0, 50.0)[1] == own_rows("error", None, 50.0, 50.0)[1]
